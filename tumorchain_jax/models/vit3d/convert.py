"""M3D-CLIP's image encoder as MONAI's blocks name it <-> `ViT3D`. See `weight_map`.

The keys are those of the bare encoder, `pretrained_ViT.bin` of BAAI-DCAI/M3D: 138 tensors.
"""

from tumorchain_jax.models.weight_map import KEEP, TRANSPOSE, Table

TABLE: Table = (
    (r"cls_token", r"cls_token", KEEP),
    (r"position_embed", r"patch_embedding.position_embeddings", KEEP),
    (r"patch_embed/kernel", r"patch_embedding.patch_embeddings.1.weight", TRANSPOSE),
    (r"patch_embed/bias", r"patch_embedding.patch_embeddings.1.bias", KEEP),
    (r"blocks/(norm\d)/scale", r"blocks.{layer}.\1.weight", KEEP),
    (r"blocks/(norm\d)/bias", r"blocks.{layer}.\1.bias", KEEP),
    (r"blocks/(qkv|out_proj)/kernel", r"blocks.{layer}.attn.\1.weight", TRANSPOSE),
    (r"blocks/(out_proj)/bias", r"blocks.{layer}.attn.\1.bias", KEEP),
    (r"blocks/(linear\d)/kernel", r"blocks.{layer}.mlp.\1.weight", TRANSPOSE),
    (r"blocks/(linear\d)/bias", r"blocks.{layer}.mlp.\1.bias", KEEP),
    (r"norm/scale", r"norm.weight", KEEP),
    (r"norm/bias", r"norm.bias", KEEP),
)
# MONAI from 1.4 on gives every block a cross-attention, used or not.
IGNORE = (r"blocks\.\d+\.(norm_cross_attn|cross_attn)\..*",)
