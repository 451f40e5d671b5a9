"""A server that answers every call with the same bytes, slowly or not at all."""

import socket
import threading
import time
from contextlib import contextmanager


@contextmanager
def lying(content, *, pause_s=0.0):
    """Its address. ``None``: it takes the call and never answers; ``pause_s`` before each byte."""
    stop = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)

    def answer(connection):
        with connection:
            try:
                connection.recv(1 << 20)
                if content is None:
                    stop.wait(30)
                elif not pause_s:
                    connection.sendall(content)
                for byte in content if content and pause_s else b"":
                    if stop.is_set():
                        return
                    connection.sendall(bytes([byte]))
                    time.sleep(pause_s)
            except OSError:
                pass

    def serve():
        threads = []
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            threads.append(threading.Thread(target=answer, args=(connection,)))
            threads[-1].start()
        for thread in threads:
            thread.join()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        thread.join()
        listener.close()


def http(body, status="200 OK"):
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
