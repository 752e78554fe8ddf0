# pyright: reportMissingImports=false
"""Adapters of peft on models of transformers, by name."""

import peft
import torch
import transformers

ATTENTION = ["q_proj", "v_proj"]


def build_model(name="lora_llama"):
    cls, changes, adapter = MODELS[name]
    model_class = getattr(transformers, cls)
    model = model_class(model_class.config_class(**changes))
    return peft.get_peft_model(model, adapter)


def make_batch(batch_size=2, name="lora_llama"):
    if "vit" in name:
        images = torch.randn(batch_size, 3, 224, 224)
        return {"pixel_values": images, "labels": torch.randint(2, (batch_size,))}
    ids = torch.randint(20000, (batch_size, 256))
    return {"input_ids": ids, "labels": ids}


def lora(targets, **more):
    return peft.LoraConfig(r=16, lora_alpha=32, target_modules=targets, **more)


MODELS = {
    "lora_llama": ("LlamaForCausalLM", {}, lora(ATTENTION)),
    "lora_mistral_all": ("MistralForCausalLM", {}, lora("all-linear")),
    "rslora_qwen2": ("Qwen2ForCausalLM", {}, lora(ATTENTION, use_rslora=True)),
    "dora_opt": ("OPTForCausalLM", {}, lora(ATTENTION, use_dora=True)),
    "lora_bert": ("BertForMaskedLM", {}, lora(["query", "value"], lora_dropout=0.1)),
    "lora_vit": ("ViTForImageClassification", {}, lora("all-linear")),
    "ia3_gpt2": (
        "GPT2LMHeadModel",
        {},
        peft.IA3Config(target_modules=["c_attn", "mlp.c_proj"], feedforward_modules=["mlp.c_proj"]),
    ),
    "prompt_tuning_gpt2": (
        "GPT2LMHeadModel",
        {},
        peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=16),
    ),
}
