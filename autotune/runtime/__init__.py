"""What a model asks at run time: from where tuned configs come, and which one a problem gets."""
