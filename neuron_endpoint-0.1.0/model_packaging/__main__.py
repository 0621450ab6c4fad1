"""``python -m model_packaging``: the same as `neuron-endpoint`, for a checkout that is not installed."""

from model_packaging.cli import main

if __name__ == "__main__":
    main(prog_name="neuron-endpoint")
