"""Writes a tiny model without weights for vLLM's `--load-format dummy`: `python model.py FOLDER dense|moe`. Runs in vLLM's environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCABULARY = 512


def write(folder: Path, kind: str) -> None:
    """config.json and a tokenizer of single bytes; two layers of width 128 with eight experts for `moe`, for `dense` four layers of width
    256, so that a prompt of some hundred tokens takes longer than what every step costs."""
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, object] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "max_position_embeddings": 2048,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    own: dict[str, dict[str, object]] = {
        "dense": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 256,
            "intermediate_size": 1024,
            "num_hidden_layers": 4,
            "head_dim": 64,
        },
        "moe": {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
    }
    (folder / "config.json").write_text(json.dumps(config | own[kind]))
    names = ["<unk>", "<s>", "</s>", "<pad>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    names += [f"<extra_{n}>" for n in range(len(names), VOCABULARY)]
    tokenizer = Tokenizer(models.BPE(vocab={name: n for n, name in enumerate(names)}, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    said = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(said))


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])
