"""TumorChain in PyTorch: organ-guided interleaved reasoning over a 3D CT, for transformers.

    model = AutoModelForCausalLM.from_pretrained(REPO, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(REPO)
    found = model.answer(tokenizer, "Where is the tumour in this CT?", **inputs)

`inputs` are the arrays of a prepared scan (see README.md). This file needs torch and transformers
alone. Research software, not a medical device.

Shape letters: D H W voxels, N cells of the token grid, C crops, M visual tokens, O organs (57, row
0 is the background), S candidates, L ROI slots, F features, K embedding, T tokens.
"""

import math
import re

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PreTrainedModel
from transformers.configuration_utils import PretrainedConfig

TEXT = -1
INITIAL_ORGANS = 2
SOFT_SEPARATORS = b" \t\n\r\f\v-_"


class TumorChainConfig(PretrainedConfig):
    """What `config.json` says: sizes, the chat template's pieces, and the organs' names."""

    model_type = "tumorchain"

    def __init__(self, text_config=None, **fields):
        if isinstance(text_config, dict):
            text_config = AutoConfig.for_model(**text_config)
        self.text_config = text_config
        for name in ("encoder", "projector", "crop", "template", "organs", "loop"):
            setattr(self, name, fields.pop(name, None))
        self.global_pool = fields.pop("global_pool", 2)
        self.roi_source = fields.pop("roi_source", "encoder")
        self.roi_slots = fields.pop("roi_slots", 64)
        self.roi_rank = fields.pop("roi_rank", "coverage")
        fields.setdefault("tie_word_embeddings", False)
        super().__init__(**fields)


class PatchEmbedding(nn.Module):
    """Patches of a volume as tokens with learnt positions."""

    def __init__(self, image, patch, features):
        super().__init__()
        self.patch = patch
        cells = math.prod(n // p for n, p in zip(image, patch, strict=True))
        self.patch_embeddings = nn.Sequential(nn.Identity(), nn.Linear(math.prod(patch), features))
        self.position_embeddings = nn.Parameter(torch.zeros(1, cells, features))

    def forward(self, volume):
        """`[B, D, H, W]` -> `[B, N, F]`."""
        batch, *size = volume.shape
        (d, p), (h, q), (w, r) = ((n // k, k) for n, k in zip(size, self.patch, strict=True))
        x = volume.reshape(batch, d, p, h, q, w, r).permute(0, 1, 3, 5, 2, 4, 6)
        x = x.reshape(batch, d * h * w, p * q * r)
        return self.patch_embeddings(x) + self.position_embeddings


class Attention(nn.Module):
    """Self-attention with one projection for queries, keys and values, without bias."""

    def __init__(self, features, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(features, 3 * features, bias=False)
        self.out_proj = nn.Linear(features, features)

    def forward(self, x):
        """`[B, N, F]` -> `[B, N, F]`."""
        batch, count, features = x.shape
        parts = self.qkv(x).reshape(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(*parts)
        return self.out_proj(x.transpose(1, 2).reshape(batch, count, features))


class Mlp(nn.Module):
    """Two layers with the exact GELU between."""

    def __init__(self, features, inner):
        super().__init__()
        self.linear1 = nn.Linear(features, inner)
        self.linear2 = nn.Linear(inner, features)

    def forward(self, x):
        """`[B, N, F]` -> `[B, N, F]`."""
        return self.linear2(F.gelu(self.linear1(x)))


class Block(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, features, inner, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.attn = Attention(features, heads)
        self.mlp = Mlp(features, inner)

    def forward(self, x):
        """`[B, N, F]` -> `[B, N, F]`."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    """M3D-CLIP's 3D vision transformer."""

    def __init__(self, image, patch, hidden_size, mlp_size, num_layers, num_heads):
        super().__init__()
        self.patch_embedding = PatchEmbedding(image, patch, hidden_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, hidden_size))
        self.blocks = nn.ModuleList(
            Block(hidden_size, mlp_size, num_heads) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, volume):
        """`[B, D, H, W]` in [0, 1] -> `[B, N, F]`; the class token is dropped."""
        x = self.patch_embedding(volume)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)[:, 1:]


class OrganClassifier(nn.Module):
    """Is this organ abnormal? One layer on the mean of its ROI tokens."""

    def __init__(self, features):
        super().__init__()
        self.fc = nn.Linear(features, 2)


class CropEmbedding(nn.Module):
    """What is added to all tokens of a crop: its region, spacing and place."""

    def __init__(self, regions, features):
        super().__init__()
        self.region = nn.Parameter(torch.zeros(regions, features))
        self.place = nn.Linear(5, features, bias=False)

    def forward(self, world):
        """`[C, 7]` -> `[C, K]`."""
        place = torch.cat([torch.log(world[:, :2] / 3.0), world[:, 3:6]], dim=-1)
        return self.region + self.place(place)


class TumorChainForCausalLM(PreTrainedModel):
    """Encoder, projector, organ classifier and language model, with the loop over rounds."""

    config_class = TumorChainConfig
    base_model_prefix = ""
    main_input_name = "input_ids"

    def __init__(self, config):
        super().__init__(config)
        sizes = config.encoder
        features, width = sizes["hidden_size"], config.text_config.hidden_size
        self.encoder = Encoder(**sizes)
        activation = nn.ReLU() if config.projector["activation"] == "relu" else nn.GELU()
        self.projector = nn.Sequential(
            nn.Linear(features, width), activation, nn.Linear(width, width)
        )
        self.organ_classifier = OrganClassifier(width)
        if config.crop:
            self.crop_embedding = CropEmbedding(len(config.crop["regions"]), width)
        self.language_model = AutoModelForCausalLM.from_config(config.text_config)
        self.post_init()

    def get_input_embeddings(self):
        """The embedding of text tokens."""
        return self.language_model.get_input_embeddings()

    def forward(
        self,
        input_ids=None,
        visual_tokens=None,
        visual_index=None,
        inputs_embeds=None,
        **more,
    ):
        """Logits of a prompt: of text alone, or with visual tokens in some places.

        Args:
            input_ids: `[1, T]`.
            visual_tokens: `[M, K]`, of `encode`.
            visual_index: `[T]`, index of the visual token at each position, -1 for text.
        """
        if inputs_embeds is None:
            inputs_embeds = self.get_input_embeddings()(input_ids)
            if visual_tokens is not None:
                index = torch.as_tensor(visual_index, device=inputs_embeds.device)
                visual = visual_tokens[index.clamp(min=0)]
                inputs_embeds = torch.where(index[None, :, None] >= 0, visual, inputs_embeds)
        return self.language_model(inputs_embeds=inputs_embeds, **more)

    def encode(self, image, crops=None, crop_world=None):
        """Visual tokens of a scan: global tokens, its cells, the cells of its crops.

        Args:
            image: `[D, H, W]` in [0, 1].
            crops: `[C, D, H, W]`, of a model that reads crops.
            crop_world: `[C, 7]`, where each crop lies.

        Returns:
            `[M, K]`.
        """
        config, size = self.config, self.config.global_pool
        grid = [
            n // p for n, p in zip(config.encoder["image"], config.encoder["patch"], strict=True)
        ]
        volumes = image[None] if crops is None else torch.cat([image[None], crops])
        cells = self.encoder(volumes)
        d, h, w = (n // size for n in grid)
        blocks = cells[0].reshape(d, size, h, size, w, size, -1)
        pooled = blocks.mean(dim=(1, 3, 5)).reshape(d * h * w, -1)
        if config.roi_source == "global":
            return self.projector(pooled)
        tokens = self.projector(torch.cat([pooled, cells.reshape(-1, cells.shape[-1])]))
        if crops is not None:
            each = self.crop_embedding(crop_world).repeat_interleave(math.prod(grid), dim=0)
            before = tokens[: len(tokens) - len(each)]
            tokens = torch.cat([before, tokens[len(before) :] + each])
        return tokens

    def choose(self, visual_tokens, roi_index, roi_valid):
        """The ROI tokens of every organ: those that are given, or the most abnormal candidates.

        Args:
            roi_index, roi_valid: `[O, S]`, indices of visual tokens, and which of them count.

        Returns:
            a list of indices for each organ, ascending.
        """
        rois = [index[valid] for index, valid in zip(roi_index, roi_valid, strict=True)]
        if self.config.roi_rank == "evidence":
            logits = self.organ_classifier.fc(visual_tokens).float()
            evidence = logits[:, 1] - logits[:, 0]
            for organ, index in enumerate(rois):
                order = torch.sort(evidence[index], descending=True, stable=True).indices
                rois[organ] = index[order[: self.config.roi_slots]].sort().values
        return [index.tolist() for index in rois]

    @torch.no_grad()
    def answer(
        self,
        tokenizer,
        question,
        image,
        roi_index,
        roi_valid,
        crops=None,
        crop_world=None,
        rounds=None,
    ):
        """Answer a question about a scan, greedily.

        Args:
            tokenizer: of this repository.
            image, crops, crop_world: as of `encode`; roi_index, roi_valid: as of `choose`.
            rounds: at most this many.

        Returns:
            `rounds`: of each its `text`, `tokens` and the organs `looked_at` after it;
            `stop_reason`; `abnormal`: by organ, the classifier's probability.
        """
        config, loop = self.config, self.config.loop
        image = self._tensor(image, self.dtype)
        if config.crop:
            crops = self._tensor(crops, self.dtype)
            crop_world = self._tensor(crop_world, self.dtype)
        visual = self.encode(image, crops if config.crop else None, crop_world)
        index = self._tensor(roi_index, torch.long)
        rois = self.choose(visual, index, self._tensor(roi_valid, torch.bool))
        chat = Chat(tokenizer, config)
        visited = set()
        initial = []
        if loop["initial_roi"]:
            named = dict.fromkeys(chat.organs_named(question))
            visited = set([each for each in named if rois[each]][:INITIAL_ORGANS])
            initial = [(each, rois[each]) for each in named if each in visited]
        prompt = chat.question(question, loop["global_tokens"], initial)
        cache = DynamicCache(config=self.language_model.config)
        logits = self._read(visual, prompt, cache)
        asked = len(prompt)
        limit, written = min(rounds or loop["max_rounds"], loop["max_rounds"]), []
        budget, stop = loop["max_rounds"] * loop["tokens_per_round"], "no_new_organ"
        while True:
            most = min(budget, loop["tokens_per_round"])
            tokens, complete = self._write(visual, logits, cache, chat.im_end, most)
            budget -= len(tokens)
            text = tokenizer.decode(tokens, skip_special_tokens=True)
            named = dict.fromkeys(chat.organs_named(text))
            new = [each for each in named if rois[each] and each not in visited]
            written.append({"text": text, "tokens": tokens, "looked_at": []})
            if not complete and budget <= 0:
                stop = "token_budget"
                break
            if not new or len(written) == limit:
                stop = "max_rounds" if new else "no_new_organ"
                break
            organs = new[: loop["organs_per_round"]]
            written[-1]["looked_at"] = [config.organs["names"][each] for each in organs]
            visited.update(organs)
            turn = chat.look_again([(each, rois[each]) for each in organs])
            if loop["history"] == "latest":
                cache.crop(asked)
                turn = [(token, TEXT) for token in tokens] + turn
            logits = self._read(visual, turn, cache)
        return {
            "rounds": written,
            "stop_reason": stop,
            "abnormal": {
                config.organs["names"][organ]: self._abnormal(visual, index)
                for organ, index in enumerate(rois)
                if index
            },
        }

    def _tensor(self, values, kind):
        return torch.as_tensor(values, dtype=kind, device=self.device)

    def _read(self, visual, turn, cache):
        """Read a turn of (token, visual index); logits of what follows it."""
        tokens, index = zip(*turn, strict=True)
        ids = torch.tensor([tokens], device=self.device)
        found = self(ids, visual, list(index), past_key_values=cache, use_cache=True)
        return found.logits[0, -1]

    def _write(self, visual, logits, cache, end, most):
        """Write until the model ends its answer, or `most` tokens are there."""
        tokens = []
        while len(tokens) < most:
            token = int(logits.argmax())
            if token == end:
                return tokens, True
            tokens.append(token)
            logits = self._read(visual, [(token, TEXT)], cache)
        return tokens, False

    def _abnormal(self, visual, index):
        logits = self.organ_classifier.fc(visual[index].mean(dim=0)).float()
        return float(logits.softmax(dim=-1)[1])


class Chat:
    """The prompt's pieces, as lists of (token, index of a visual token or -1)."""

    def __init__(self, tokenizer, config):
        self.tokenizer, template = tokenizer, config.template
        self.names = config.organs["display"]
        self.labels = config.organs["labels_by_name"]
        self._pattern = _name_pattern(self.labels)
        self.im_end, self.vision_start, self.vision_end, self.image_pad = (
            tokenizer.convert_tokens_to_ids(template[name])
            for name in ("im_end", "vision_start", "vision_end", "image_pad")
        )
        encode = self._template
        self.system, self.user = encode(template["system"]), encode(template["open_user"])
        self.again = encode(template["after_answer"]) + self.user
        self.open = encode(template["close_user"] + template["open_assistant"])

    def question(self, text, global_tokens, rois):
        """The first turn: visual tokens of the whole scan, organs of the question, its text."""
        turn = self.system + self.user + self._visual(range(global_tokens))
        for organ, index in rois:
            turn += self._attend(organ, index)
        return turn + self._text(text) + self.open

    def look_again(self, rois):
        """The turn between two rounds: each organ's sentence and its tokens."""
        turn = [(self.im_end, TEXT), *self.again]
        for organ, index in rois:
            turn += self._attend(organ, index)
        return turn + self.open

    def organs_named(self, text):
        """Labels of the organs that a text names, first mention first."""
        for match in self._pattern.finditer(text.encode(errors="replace")):
            yield from sorted(self.labels[_normalise(match[0].decode())])

    def _attend(self, organ, index):
        sentence = f"The question requires greater attention to the {self.names[organ]}."
        return self._text(sentence) + self._visual(index)

    def _visual(self, index):
        middle = [(self.image_pad, each) for each in index]
        return [(self.vision_start, TEXT), *middle, (self.vision_end, TEXT)]

    def _text(self, text):
        """Text is data: control tokens in it are spelt out."""
        return self._encode(text, True)

    def _template(self, text):
        return self._encode(text, False)

    def _encode(self, text, as_data):
        backend = self.tokenizer.backend_tokenizer
        before, backend.encode_special_tokens = backend.encode_special_tokens, as_data
        try:
            ids = backend.encode(text, add_special_tokens=False).ids
        finally:
            backend.encode_special_tokens = before
        return [(token, TEXT) for token in ids]


def _normalise(name):
    """Lower case, and every run of soft separators as one space."""
    return re.sub(rf"[{re.escape(SOFT_SEPARATORS.decode())}]+", " ", name).strip().lower()


def _name_pattern(names):
    """An expression that finds whole names, the longest first."""
    soft = b"[" + re.escape(SOFT_SEPARATORS) + b"]+"
    word = rb"[a-zA-Z0-9\xc3-\xe1]"
    longest_first = sorted(names, key=len, reverse=True)
    choices = b"|".join(soft.join(name.encode().split()) for name in longest_first)
    return re.compile(b"(?<!%b)(?:%b)(?!%b)" % (word, choices, word), re.IGNORECASE)
