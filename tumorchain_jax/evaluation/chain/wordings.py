"""Wordings of reports, apart from those of the digital patients' own: used to mend the rules."""

from tumorchain_jax.evaluation.chain.phrases import Phrases

PLAIN = Phrases(
    name="other wording",
    headings=("Findings:", "Impression:", "Pathology:"),
    statements={
        "normal": (
            "The {organ} is normal.",
            "{Organ}: unremarkable.",
            "No abnormality in the {organ}.",
            "Nothing remarkable is seen in the {organ}, which is normal.",
        ),
        "lesion": (
            "There is a {density} lesion in the {part}, {shape}, {border}, {mm} mm.",
            "The {part} shows a {shape} mass of {cm} cm that is {density} and {border}.",
            "One lesion ({mm} mm) is seen in the {part}. It is {density}, {shape} and {border}.",
        ),
        "lesions": (
            "There are {count} lesions in the {organ}, the largest of {mm} mm in the {part}, "
            "{density}, {shape} and {border}.",
            "{Count} masses are seen in the {organ}. The largest one lies in the {part} and "
            "measures {cm} cm. They are {density}, {shape} and {border}.",
        ),
        "calcification": ("It holds calcifications.", "Calcification is present."),
        "rim enhancement": ("Its rim enhances.", "There is ring enhancement."),
        "wall thickening": ("The wall is thickened.", "There is wall thickening around it."),
        "ductal dilatation": ("The ducts are dilated.", "There is dilatation of the ducts."),
        "wall": ("It stays within the wall.", "It is limited to the wall."),
        "fat": ("It extends into the fat.", "There is infiltration of the surrounding fat."),
        "surface": ("It extends to the serosa.", "The outer surface is involved."),
        "nodes": (
            "{Count} lymph nodes are enlarged.",
            "There are {count} enlarged lymph nodes nearby.",
        ),
        "node": ("One lymph node is enlarged.", "There is one enlarged lymph node nearby."),
        "no nodes": ("Lymph nodes are not enlarged.", "No enlarged lymph nodes are seen."),
        "metastases": ("There are metastases in the {organ}.", "The {organ} shows metastases."),
        "cirrhosis": ("The liver is cirrhotic.", "The liver is nodular, which suggests cirrhosis."),
        "spleen": ("The spleen is enlarged.", "There is splenomegaly."),
        "swelling": ("The pancreas is inflamed.", "There is swelling of the pancreas."),
        "benign": ("There is a {name} in the {organ}.", "A {name} is seen in the {organ}."),
        "tumour": (
            "This suggests a tumour of the {organ}.",
            "Suspected cancer of the {organ}.",
            "The findings point to a malignant tumour of the {organ}.",
        ),
        "no tumour": (
            "There is no tumour.",
            "No malignancy is seen.",
            "Nothing suggests a tumour.",
        ),
        "spread": ("There are metastases in the {sites}.", "It has spread to the {sites}."),
        "no spread": ("There are no metastases.", "No distant metastasis is seen."),
        "stage": ("Stage {t} {n} {m}.", "It is staged as {t}, {n}, {m}."),
        "no stage": ("There is nothing to stage.", "No stage applies."),
    },
    values={
        "hypodense": ("hypodense", "hypoattenuating", "low density"),
        "hyperdense": ("hyperdense", "hyperattenuating", "high density"),
        "round": ("round", "spherical"),
        "irregular": ("irregular", "irregularly shaped"),
        "well-defined": ("well-defined", "sharply marginated"),
        "ill-defined": ("ill-defined", "poorly marginated"),
    },
)
