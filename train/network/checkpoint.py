"""Published checkpoint directories (config.json, *.safetensors) to `Model` and back."""
import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from network.model import Model

SHARD_BYTES = 15 << 20


def config_of(folder: Path) -> dict:
    path = Path(folder) / "config.json"
    if not path.exists():
        raise SystemExit(f"{path}: not found; expected a model directory as published (config.json, "
                         "*.safetensors, tokenizer.json)")
    config = json.loads(path.read_text())
    if config.get("model_type") != "qwen3_5":
        raise SystemExit(f"{path}: model_type {config.get('model_type')!r}; expected 'qwen3_5'")
    return config


def files_of(folder: Path) -> dict[Path, dict[str, torch.Tensor]]:
    """The tensors of each file of weights."""
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise SystemExit(f"{folder}: no *.safetensors there; expected a directory with weights as published")
    result = {}
    for file in files:
        try:
            result[file] = load_file(file)
        except SafetensorError as error:
            raise SystemExit(f"{file}: {error}; the file is damaged or cut short") from None
    return result


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for tensors in files_of(folder).values() for name, tensor in tensors.items()}


def load(folder: Path) -> Model:
    """The model in float32, the convolution of the patch embedding summed to one grey channel."""
    model, state = Model(config_of(folder)), {}
    for name, tensor in tensors_of(folder).items():
        name = name.removeprefix("model.")
        if name == "visual.patch_embed.proj.weight":  # [D, 3, 2, 16, 16]
            name, tensor = "visual.patch.weight", tensor.float().sum((1, 2)).flatten(1)
        name = name.replace("visual.patch_embed.proj.bias", "visual.patch.bias")
        state[name] = tensor.float()
    if not hasattr(model, "lm_head"):
        state.pop("lm_head.weight", None)
    state = {n: t for n, t in state.items() if not n.startswith("mtp.")}
    missing, unknown = model.load_state_dict(state, strict=False)
    if missing or unknown:
        raise SystemExit(f"{folder}: tensors missing {missing[:4]}, unknown {unknown[:4]}")
    return model


def save(model: Model, config: dict, folder: Path) -> None:
    """bf16 weights in files of at most SHARD_BYTES, an index, config.json."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shards, size = [{}], 0
    for name, tensor in model.state_dict().items():
        if name == "visual.patch.weight":
            channels = config["vision_config"]["in_channels"]
            frames = config["vision_config"]["temporal_patch_size"]
            name = "visual.patch_embed.proj.weight"
            tensor = (tensor / (channels * frames)).view(-1, 1, 1, 16, 16).expand(
                -1, channels, frames, 16, 16)
        name = name.replace("visual.patch.bias", "visual.patch_embed.proj.bias")
        name = name if name.startswith("lm_head") else "model." + name
        tensor = tensor.detach().bfloat16().cpu().contiguous()
        if size + tensor.nbytes > SHARD_BYTES and shards[-1]:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    where = {}
    for old in folder.glob("model*.safetensors"):
        old.unlink()
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05}-of-{len(shards):05}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(shard, file)
    total = sum(t.nbytes for s in shards for t in s.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=1) + "\n")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
