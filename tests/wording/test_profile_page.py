"""Profiles in the formats of other tools, each read by what is not ours; and as HTML."""

import gzip
from html.parser import HTMLParser

import pytest

from autotune.wording.profile import Profiles
from autotune.wording.profile_page import folded_stacks, fragment, page, perfetto_trace, pprof
from tests.samples.line_profiles import EVIL, HELPER, LINE, profiled


def test_folded_stacks_have_a_count_behind_frames_that_no_name_can_break():
    """As flamegraph.pl reads them: the count behind the last space, frames between semicolons."""
    stacks = [line.rsplit(" ", 1) for line in folded_stacks([profiled()]).splitlines()]
    assert [stack.split(";") for stack, _ in stacks] == [
        ["kernel, one", "body <k>.py:7", "helper helper.py:20"],
        ["kernel, one", "body <k>.py:7"],
        ["kernel, one", "steps of the pipeline"],
    ]
    assert [int(count) for _, count in stacks] == [3500, 40, 100]
    both = folded_stacks([profiled("m=8"), profiled("m=16")])
    assert {line.split(";")[0] for line in both.splitlines()} == {"m=8", "m=16"}


def pprof_message():
    """``perftools.profiles.Profile`` as pprof publishes it, what we write of it."""
    descriptors = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    fields = {  # number, type (3: int64, 4: uint64, 9: string, 11: message), repeated, message
        "ValueType": {"type": (1, 3), "unit": (2, 3)},
        "Label": {"key": (1, 3), "str": (2, 3), "num": (3, 3), "num_unit": (4, 3)},
        "Sample": {
            "location_id": (1, 4, True),
            "value": (2, 3, True),
            "label": (3, 11, True, "Label"),
        },
        "Line": {"function_id": (1, 4), "line": (2, 3), "column": (3, 3)},
        "Location": {"id": (1, 4), "line": (4, 11, True, "Line")},
        "Function": {"id": (1, 4), "name": (2, 3), "system_name": (3, 3), "filename": (4, 3)},
        "Profile": {
            "sample_type": (1, 11, True, "ValueType"),
            "sample": (2, 11, True, "Sample"),
            "location": (4, 11, True, "Location"),
            "function": (5, 11, True, "Function"),
            "string_table": (6, 9, True),
            "default_sample_type": (14, 3),
        },
    }
    file = descriptors.FileDescriptorProto(name="profile.proto", package="p", syntax="proto3")
    for message, members in fields.items():
        described = file.message_type.add(name=message)
        for name, (number, kind, *more) in members.items():
            field = described.field.add(name=name, number=number, type=kind)
            field.label = 3 if more else 1
            if more[1:]:
                field.type_name = f".p.{more[1]}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Profile"))()


def test_pprof_is_read_by_protobuf_and_names_every_cause():
    message = pprof_message()
    message.ParseFromString(gzip.decompress(pprof([profiled()])))
    size = message.ByteSize()
    message.DiscardUnknownFields()
    assert message.ByteSize() == size
    text = message.string_table
    assert text[0] == ""
    assert [(text[t.type], text[t.unit]) for t in message.sample_type] == [
        ("cycles", "count"),
        ("time", "nanoseconds"),
    ]
    functions = {f.id: (text[f.name], text[f.filename]) for f in message.function}
    lines = {
        at.id: (*functions[at.line[0].function_id], at.line[0].line) for at in message.location
    }
    samples = [
        ([lines[i] for i in s.location_id], list(s.value), text[s.label[0].str])
        for s in message.sample
    ]
    stack = [("helper", HELPER.file, 20), ("body", LINE.file, 7), ("kernel; one", "", 0)]
    assert samples[:2] == [
        (stack, [3000, 3000], "matrix issue"),
        (stack, [500, 500], "matrix unit stalls"),
    ]
    assert samples[3][0][0] == ("steps of the pipeline", "", 0)
    assert text[message.default_sample_type] == "cycles"


def test_perfetto_has_lines_and_the_operations_around():
    text = perfetto_trace([profiled()])
    assert '"line": "/other/helper.py:20"' in text and '"name": "copy.1"' in text


class Strict(HTMLParser):
    """Every tag closed, nothing from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.tags = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "onload", "onclick"}
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("named", [[profiled()], [profiled(), profiled("m=16", 9000)]])
def test_a_page_has_no_script_and_shows_the_source_as_it_is(named):
    made = page(f"t {EVIL}", named)
    parser = Strict()
    parser.feed(made)
    parser.close()
    assert parser.open == [] and "script" not in parser.tags
    text = "".join(parser.text)
    shown = EVIL.replace("\x1b", "\\x1b")
    assert text.count(shown) >= 2 and "\x1b" not in made
    assert "http" not in made
    assert parser.tags.count("svg") == 3 * len(named)
    assert ("core, other" in text) == (len(named) == 2)
    assert "step 0: 2.0 µs" in text and "vmatmul ×8" in text and "n<b>" in text
    assert "copy.1 2.0 µs, helper.py:20" in text


def test_a_cell_shows_the_page_and_a_prompt_the_table():
    cell = Profiles([profiled()])
    assert cell._repr_html_() == fragment([profiled()])
    assert "kernel; one, m=8: 3.6 µs" in repr(cell) and "copy.1 2.0 µs, helper.py:20" in str(cell)
