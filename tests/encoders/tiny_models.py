"""Tiny models as `transformers` saves them: random weights, real files, real preprocessing."""

import json
from pathlib import Path
from typing import Any

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "cat", "runs", "red", "blue", "green", "picture"]


def save_clip(folder: Path, seed: int = 0) -> Path:
    """A CLIP of 4 x 4 patches and 16 values."""
    from transformers import CLIPConfig, CLIPModel

    sizes: dict[str, Any] = {
        "hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 1, "num_attention_heads": 2,
    }  # fmt: skip
    text = {**sizes, "vocab_size": len(WORDS), "max_position_embeddings": 8, "eos_token_id": 3, "bos_token_id": 2}
    config = CLIPConfig(
        text_config={**text, "pad_token_id": 0}, vision_config={**sizes, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )  # fmt: skip
    _save(folder, CLIPModel, config, seed)
    _save_processor(folder, "CLIPImageProcessor")
    return _save_tokenizer(folder)


def save_siglip(folder: Path) -> Path:
    """A SigLIP of 4 x 4 patches and 32 values."""
    from transformers import SiglipConfig, SiglipModel

    sizes: dict[str, Any] = {
        "hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 1, "num_attention_heads": 2,
    }  # fmt: skip
    text = {**sizes, "vocab_size": len(WORDS), "max_position_embeddings": 8}
    config = SiglipConfig(
        text_config={**text, "pad_token_id": 0, "eos_token_id": 3, "bos_token_id": 2},
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
    )
    _save(folder, SiglipModel, config, 0)
    _save_processor(folder, "SiglipImageProcessor")
    return _save_tokenizer(folder)


def save_vit(folder: Path) -> Path:
    """A vision transformer of a class token and 4 x 4 patches."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32, intermediate_size=37, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=8
    )
    _save(folder, ViTModel, config, 0)
    return _save_processor(folder, "ViTImageProcessor")


def save_sentences(folder: Path) -> Path:
    """A BERT as sentence-transformers keeps one."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=24, intermediate_size=37, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=16,
    )  # fmt: skip
    _save(folder, BertModel, config, 0)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return _save_tokenizer(folder)


def _save(folder: Path, kind: Any, config: Any, seed: int) -> None:
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(seed)
    kind(config).save_pretrained(folder)


def _save_processor(folder: Path, name: str) -> Path:
    values = {
        "image_processor_type": name, "do_resize": True, "do_center_crop": False, "do_rescale": True,
        "do_normalize": True,
        "size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
    return folder


def _save_tokenizer(folder: Path) -> Path:
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    named = {"tokenizer_class": "BertTokenizer", "model_max_length": 16}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return folder
