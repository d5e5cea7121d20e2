#!/usr/bin/env python3
"""Times a decode step of Hugging Face transformers on the text decoder of a Qwen3.5 shape, with random weights.

    pip install torch transformers
    python3 bench/rivals/hf.py --shape qwen3.5-4b --batch 1 --context 1024
    python3 bench/rivals/hf.py --shape all --batch 1 8 --context 1024 4096 --compile
    python3 bench/rivals/hf.py --shape tiny --device cpu --steps 4

Prints one JSON line for each (shape, batch, context). Nothing is downloaded. README.md says what is fair.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["USE_HUB_KERNELS"] = "NO"  # they would come from the hub

import argparse  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import signal  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig, StaticCache  # noqa: E402

# hidden, layers, intermediate, query heads, key-value heads, GDN key heads, GDN value heads, tied embeddings
SHAPES = {
    "qwen3.5-0.8b": (1024, 24, 3584, 8, 2, 16, 16, True),
    "qwen3.5-2b": (2048, 24, 6144, 8, 2, 16, 16, True),
    "qwen3.5-4b": (2560, 32, 9216, 16, 4, 16, 32, True),
    "qwen3.5-9b": (4096, 32, 12288, 16, 4, 16, 32, False),
    "tiny": (256, 4, 512, 2, 1, 2, 4, True),
}
FAST_PATHS = {"flash-linear-attention": "fla", "causal-conv1d": "causal_conv1d", "kernels": "kernels"}
REPEATS = 3


def configuration(shape, layers):
    hidden, depth, intermediate, heads, kv_heads, key_heads, value_heads, tied = SHAPES[shape]
    return Qwen3_5TextConfig(
        vocab_size=4096 if shape == "tiny" else 248320,
        hidden_size=hidden,
        num_hidden_layers=layers or depth,  # every fourth is full attention, the default
        intermediate_size=intermediate,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=256,
        linear_num_key_heads=key_heads,
        linear_num_value_heads=value_heads,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
        tie_word_embeddings=tied,
        max_position_embeddings=262144,
        initializer_range=hidden**-0.5,  # a projection of unit-size activations is of unit size
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10_000_000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10],
            "mrope_interleaved": True,
        },
    )


def build(config, device, dtype):
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    with torch.device(device):
        model = Qwen3_5ForCausalLM._from_config(config, attn_implementation="sdpa", dtype=dtype)
    torch.set_default_dtype(torch.float32)
    return model.eval().requires_grad_(False)


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


class Decoder:
    """Greedy decoding after a prompt of random tokens; the token stays on the device, as in model.generate."""

    def __init__(self, model, batch, context, most_steps):
        self.model, self.device = model, next(model.parameters()).device
        self.cache = StaticCache(config=model.config, max_cache_len=context + most_steps)
        self.step = self.forward
        prompt = torch.randint(model.config.vocab_size, (batch, context), device=self.device)
        positions = torch.arange(context, device=self.device).expand(batch, -1)
        self.token = self.forward(prompt, positions)
        self.position = torch.full((batch, 1), context, device=self.device)

    def forward(self, tokens, positions):
        logits = self.model(
            input_ids=tokens, position_ids=positions, past_key_values=self.cache, use_cache=True, logits_to_keep=1
        ).logits
        self.last_logits = logits
        return logits.argmax(-1)

    def compiled(self, tokens, positions):
        torch.compiler.cudagraph_mark_step_begin()
        return self.graph(input_ids=tokens, position_ids=positions, past_key_values=self.cache, use_cache=True).logits.argmax(-1)

    def use_compiled(self):
        self.graph = torch.compile(self.model, mode="reduce-overhead")
        self.step = self.compiled

    def run(self, steps):
        for _ in range(steps):
            self.token = self.step(self.token, self.position).clone()
            self.position += 1

    def milliseconds(self, steps):
        synchronize(self.device)
        begin = time.perf_counter()
        self.run(steps)
        synchronize(self.device)
        return 1e3 * (time.perf_counter() - begin) / steps


class OutOfTime(BaseException):  # no handler for Exception may keep it
    pass


def try_compile(decoder, warmup, seconds):
    """What became of it, in words."""

    def stop(*_):
        raise OutOfTime

    eager = decoder.step
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        decoder.use_compiled()
        decoder.run(warmup)
        synchronize(decoder.device)
        return "reduce-overhead"
    except OutOfTime:
        decoder.step = eager
        return f"eager: compilation took longer than {seconds} s"
    except Exception as error:  # whatever the compiler raises, the eager figure is still wanted
        decoder.step = eager
        return f"eager: compilation failed: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
    finally:
        signal.alarm(0)


@torch.no_grad()
def measure(model, shape, batch, context, arguments):
    warmup = 4
    decoder = Decoder(model, batch, context, (REPEATS + 2) * max(arguments.steps, warmup))
    if not torch.isfinite(decoder.last_logits).all():
        raise SystemExit(f"{shape}: logits are not finite after the prompt; the weights are scaled wrongly")
    mode = try_compile(decoder, warmup, arguments.compile_seconds) if arguments.compile else "eager"
    decoder.run(warmup)
    times = sorted(decoder.milliseconds(arguments.steps) for _ in range(REPEATS))
    middle = statistics.median(times)
    cuda = decoder.device.type == "cuda"
    return {
        "rival": "transformers",
        "shape": shape,
        "layers": model.config.num_hidden_layers,
        "batch": batch,
        "context": context,
        "steps": arguments.steps,
        "ms_per_step": round(middle, 4),
        "ms_range": [round(times[0], 4), round(times[-1], 4)],
        "tokens_per_second": round(1e3 * batch / middle, 2),
        "mode": mode,
        "dtype": str(model.dtype).removeprefix("torch."),
        "parameters": model.num_parameters(),
        "fast_paths": {name: importlib.util.find_spec(module) is not None for name, module in FAST_PATHS.items()},
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
        "peak_bytes": torch.cuda.max_memory_allocated() if cuda else None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=[*SHAPES, "all"], default="qwen3.5-4b", help="tiny is for trying it out; all: without tiny")
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--context", type=int, nargs="+", default=[1024], help="tokens before the first step")
    parser.add_argument("--steps", type=int, default=32, help=f"of each of {REPEATS} timed runs; the median counts")
    parser.add_argument("--compile", action="store_true", help="CUDA graphs by torch.compile; eager when that fails")
    parser.add_argument("--compile-seconds", type=int, default=300)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, help="fewer than the shape has, to try it out")
    arguments = parser.parse_args()

    device = torch.device(arguments.device)
    shapes = [s for s in SHAPES if s != "tiny"] if arguments.shape == "all" else [arguments.shape]
    for shape in shapes:
        model = build(configuration(shape, arguments.layers), device, torch.bfloat16)
        for batch in arguments.batch:
            for context in arguments.context:
                torch.compiler.reset()
                print(json.dumps(measure(model, shape, batch, context, arguments)), flush=True)
        del model


if __name__ == "__main__":
    sys.exit(main())
