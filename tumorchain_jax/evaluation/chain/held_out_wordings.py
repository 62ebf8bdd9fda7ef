"""Wordings of reports that no rule was written for: the held-out set of the rule judge.

They were written, and committed, before the rules that read reports (`reader.py`), and are used in
no choice: a reading of them is reported, never mended. The style is that of dictated reports:
short, passive, with synonyms that neither the digital patients' own reports nor `wordings.py` use.
"""

from tumorchain_jax.evaluation.chain.phrases import Phrases

HELD_OUT = Phrases(
    name="held out",
    headings=("FINDINGS:", "OPINION:", "STAGING:"),
    statements={
        "normal": (
            "No focal abnormality of the {organ}.",
            "{Organ}: within normal limits.",
            "The {organ} is preserved in size and appearance.",
            "The {organ} does not show any pathological change.",
        ),
        "lesion": (
            "Within the {part}, a lesion is identified which is {density}, {shape} and {border}, "
            "measuring {mm} mm.",
            "A focal mass ({mm} mm) is demonstrated in the {part}; it appears {density} and "
            "{shape}, and it is {border}.",
            "A space-occupying lesion measuring {mm} mm is noted in the {part}. It is {density}. "
            "Its configuration is {shape}; it is {border}.",
        ),
        "lesions": (
            "A total of {count} lesions are identified in the {organ}, the largest within the "
            "{part} at {mm} mm; they are {density}, {shape} and {border}.",
            "The {organ} contains {count} masses. The dominant one measures {mm} mm and occupies "
            "the {part}. They are {density}, {shape} and {border}.",
        ),
        "calcification": (
            "Calcific foci are present within it.",
            "Foci of calcification are seen.",
        ),
        "rim enhancement": (
            "A rim of enhancement is evident.",
            "It exhibits peripheral enhancement.",
        ),
        "wall thickening": (
            "The adjacent wall is thickened.",
            "Associated mural thickening is observed.",
        ),
        "ductal dilatation": (
            "The duct is dilated upstream.",
            "Associated dilatation of the duct is observed.",
        ),
        "wall": ("It remains confined to the wall.", "There is no extension through the wall."),
        "fat": (
            "Extension into the surrounding fat is present.",
            "It infiltrates the adjacent fat.",
        ),
        "surface": (
            "The serosal surface is reached.",
            "It breaches the outer surface of the organ.",
        ),
        "nodes": (
            "{Count} pathologically enlarged regional lymph nodes are demonstrated.",
            "Regional lymphadenopathy is present, comprising {count} nodes.",
        ),
        "node": (
            "A single pathologically enlarged regional lymph node is demonstrated.",
            "Regional lymphadenopathy is present, comprising one node.",
        ),
        "no nodes": (
            "No pathologically enlarged lymph nodes.",
            "There is no lymphadenopathy.",
        ),
        "metastases": (
            "Secondary deposits are demonstrated in the {organ}.",
            "The {organ} harbours metastatic deposits.",
        ),
        "cirrhosis": (
            "The liver has a cirrhotic configuration.",
            "The hepatic contour is nodular, in keeping with cirrhosis.",
        ),
        "spleen": ("Splenomegaly is present.", "The spleen is increased in size."),
        "swelling": (
            "The pancreas is oedematous, in keeping with pancreatitis.",
            "There are inflammatory changes of the pancreas.",
        ),
        "benign": (
            "A benign {name} is incidentally noted in the {organ}.",
            "Incidental {name} of the {organ}, of no significance.",
        ),
        "tumour": (
            "Appearances are highly suspicious for a malignancy of the {organ}.",
            "The overall picture favours a primary neoplasm of the {organ}.",
            "Findings in keeping with carcinoma of the {organ}.",
        ),
        "no tumour": (
            "No evidence of malignancy.",
            "No neoplastic process is identified.",
            "There are no features to suggest a tumour.",
        ),
        "spread": (
            "There is distant metastatic disease involving the {sites}.",
            "Disseminated disease with deposits in the {sites}.",
        ),
        "no spread": (
            "There is no evidence of distant metastatic disease.",
            "Distant metastases are not identified.",
        ),
        "stage": (
            "Radiological stage {t}, {n}, {m}.",
            "This corresponds to {t} {n} {m}.",
            "TNM: {t}{n}{m}.",
        ),
        "no stage": ("Staging is not applicable.", "Nothing to stage."),
    },
    values={
        "hypodense": ("hypoattenuating", "of decreased attenuation", "of low density"),
        "hyperdense": ("hyperattenuating", "of increased attenuation", "of high density"),
        "round": ("rounded", "spherical", "globular"),
        "irregular": ("irregular in outline", "irregularly shaped", "of irregular form"),
        "well-defined": ("sharply demarcated", "well circumscribed", "clearly delineated"),
        "ill-defined": ("poorly demarcated", "ill circumscribed", "poorly delineated"),
    },
)
