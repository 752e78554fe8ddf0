# pyright: reportMissingImports=false
"""Models of Hugging Face transformers, by architecture, of the size that its config has.

DeepSeek-V3 and gpt-oss have 6 of their layers. RWKV has 8 of its own and texts of 32 tokens: in
torch alone it runs one token after the other.
"""

import torch
import transformers

TOKENS = 256


def build_model(name="gpt2"):
    cls, _, changes = MODELS[name]
    model_class = getattr(transformers, cls)
    config = model_class.config_class(**changes)
    return model_class(config)


def make_batch(batch_size=2, name="gpt2"):
    return MODELS[name][1](batch_size)


def text(tokens=TOKENS):
    """Return the inputs of a language model."""

    def inputs(batch_size):
        ids = torch.randint(20000, (batch_size, tokens))
        return {"input_ids": ids, "labels": ids}

    return inputs


def padded_text(labels=True):
    """Return what a tokenizer gives for texts of several lengths."""

    def inputs(batch_size):
        batch = text()(batch_size) | {"attention_mask": torch.ones(batch_size, TOKENS)}
        return batch if labels else {key: batch[key] for key in ("input_ids", "attention_mask")}

    return inputs


def images(size=224, classes=2, **more):
    def inputs(batch_size):
        batch = {"pixel_values": torch.randn(batch_size, 3, size, size)}
        if classes:
            batch["labels"] = torch.randint(classes, (batch_size,))
        return batch | {key: value(batch_size) for key, value in more.items()}

    return inputs


def segmentation(batch_size):
    pixels = torch.randn(batch_size, 3, 512, 512)
    return {"pixel_values": pixels, "labels": torch.randint(2, (batch_size, 512, 512))}


def pairs(words, tokens, size=224):
    """Return the inputs of a model that compares texts with images."""

    def inputs(batch_size):
        return {
            "input_ids": torch.randint(words, (batch_size, tokens)),
            "pixel_values": torch.randn(batch_size, 3, size, size),
            "return_loss": True,
        }

    return inputs


def spectrogram(bins=80, frames=3000):
    def inputs(batch_size):
        features = torch.randn(batch_size, bins, frames)
        return {"input_features": features, "labels": torch.randint(20000, (batch_size, 64))}

    return inputs


def sound(batch_size):
    waves = torch.randn(batch_size, 32000)
    return {"input_values": waves, "labels": torch.randint(1, 30, (batch_size, 20))}


def patches_of_sound(batch_size):
    values = torch.randn(batch_size, 1024, 128)
    return {"input_values": values, "labels": torch.randint(2, (batch_size,))}


def video(size=224, frames=16):
    def inputs(batch_size):
        pixels = torch.randn(batch_size, frames, 3, size, size)
        return {"pixel_values": pixels, "labels": torch.randint(2, (batch_size,))}

    return inputs


def boxes(batch_size):
    found = {"class_labels": torch.randint(90, (5,)), "boxes": torch.rand(5, 4)}
    pixels = torch.randn(batch_size, 3, 512, 512)
    return {"pixel_values": pixels, "labels": [found] * batch_size}


def image_and_text(batch_size):
    ids = torch.randint(1000, (batch_size, TOKENS))
    pixels = torch.randn(batch_size, 3, 224, 224)
    return {"input_ids": ids, "labels": ids, "pixel_values": pixels}


def causal(family, **changes):
    return f"{family}ForCausalLM", text(), changes


MODELS = {
    "gpt2": ("GPT2LMHeadModel", text(), {}),
    "gpt_neo": causal("GPTNeo"),
    "gpt_neox": causal("GPTNeoX"),
    "gptj": causal("GPTJ"),
    "opt": causal("OPT"),
    "bloom": causal("Bloom"),
    "falcon": causal("Falcon"),
    "llama": causal("Llama"),
    "mistral": causal("Mistral"),
    "mixtral": causal("Mixtral"),
    "qwen2": causal("Qwen2"),
    "qwen2_moe": causal("Qwen2Moe"),
    "qwen3": causal("Qwen3"),
    "qwen3_moe": causal("Qwen3Moe"),
    "gemma": causal("Gemma"),
    "gemma2": causal("Gemma2"),
    "gemma3_text": causal("Gemma3"),
    "phi": causal("Phi"),
    "phi3": causal("Phi3", pad_token_id=0),
    "stablelm": causal("StableLm"),
    "starcoder2": causal("Starcoder2"),
    "olmo2": causal("Olmo2"),
    "granite": causal("Granite"),
    "cohere": causal("Cohere"),
    "glm": causal("Glm", pad_token_id=0),
    "smollm3": causal("SmolLM3", pad_token_id=0),
    "deepseek_v3": causal("DeepseekV3", num_hidden_layers=6),
    "gpt_oss": causal("GptOss", num_hidden_layers=6),
    "mamba": causal("Mamba"),
    "mamba2": causal("Mamba2"),
    "rwkv": ("RwkvForCausalLM", text(32), {"num_hidden_layers": 8}),
    "mpt": causal("Mpt"),
    "bert": ("BertForMaskedLM", padded_text(), {}),
    "roberta": ("RobertaForMaskedLM", padded_text(), {}),
    "xlm_roberta": ("XLMRobertaForSequenceClassification", padded_text(labels=False), {}),
    "distilbert": ("DistilBertForMaskedLM", padded_text(), {}),
    "albert": ("AlbertForMaskedLM", padded_text(), {}),
    "electra": ("ElectraForMaskedLM", padded_text(), {}),
    "deberta_v2": ("DebertaV2ForMaskedLM", padded_text(), {}),
    "modernbert": ("ModernBertForMaskedLM", padded_text(), {}),
    "longformer": ("LongformerForMaskedLM", padded_text(), {}),
    "big_bird": ("BigBirdForMaskedLM", padded_text(), {"attention_type": "original_full"}),
    "t5": ("T5ForConditionalGeneration", text(), {"decoder_start_token_id": 0}),
    "mt5": ("MT5ForConditionalGeneration", text(), {"decoder_start_token_id": 0}),
    "bart": ("BartForConditionalGeneration", text(), {}),
    "mbart": ("MBartForConditionalGeneration", text(), {}),
    "marian": ("MarianMTModel", text(), {}),
    "pegasus": ("PegasusForConditionalGeneration", text(), {}),
    "vit": ("ViTForImageClassification", images(), {}),
    "deit": ("DeiTForImageClassification", images(), {}),
    "beit": ("BeitForImageClassification", images(), {}),
    "swin": ("SwinForImageClassification", images(), {}),
    "swinv2": ("Swinv2ForImageClassification", images(), {}),
    "convnext": ("ConvNextForImageClassification", images(), {}),
    "convnextv2": ("ConvNextV2ForImageClassification", images(), {}),
    "dinov2": ("Dinov2ForImageClassification", images(), {}),
    "resnet": ("ResNetForImageClassification", images(), {}),
    "mobilevit": ("MobileViTForImageClassification", images(256), {}),
    "pvt_v2": ("PvtV2ForImageClassification", images(), {}),
    "vit_mae": ("ViTMAEForPreTraining", images(classes=0), {}),
    "segformer": ("SegformerForSemanticSegmentation", segmentation, {}),
    "upernet": ("UperNetForSemanticSegmentation", segmentation, {}),
    "dpt": ("DPTForSemanticSegmentation", images(384, 0), {}),
    "detr": ("DetrForObjectDetection", boxes, {"use_pretrained_backbone": False}),
    "yolos": ("YolosForObjectDetection", boxes, {"image_size": [512, 512]}),
    "clip": ("CLIPModel", pairs(49408, 77), {}),
    "siglip": ("SiglipModel", pairs(32000, 64), {}),
    "videomae": ("VideoMAEForVideoClassification", video(), {}),
    "timesformer": ("TimesformerForVideoClassification", video(frames=8), {}),
    "whisper": ("WhisperForConditionalGeneration", spectrogram(), {}),
    "wav2vec2": ("Wav2Vec2ForCTC", sound, {"apply_spec_augment": False}),
    "hubert": ("HubertForCTC", sound, {"apply_spec_augment": False}),
    "audio_spectrogram": ("ASTForAudioClassification", patches_of_sound, {}),
    "git": ("GitForCausalLM", image_and_text, {}),
}


def compute_loss(model, batch):
    output = model(**batch)
    loss = getattr(output, "loss", None)
    return output.logits.float().square().mean() if loss is None else loss
