"""Facts of single sentences and short texts, each with everything that they say."""

import re

import pytest

from tumorchain_jax.engine.case import Case, Document
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.text.extract import extract

# Text -> all its facts: `attribute=value@part or organ`. Before it: - absent, ? possible,
# ~ probable, < of an earlier time, h of a question or plan.
CASES = {
    # places
    "A 3 cm mass is seen in segment VII of the liver.": (
        "finding=mass@liver segment VII size=30@liver segment VII"
    ),
    "Within hepatic segment 4b there is a 12-mm hypoattenuating nodule.": (
        "finding=mass@liver segment IVb size=12@liver segment IVb density=hypodense@liver "
        "segment IVb"
    ),
    "S6: lesion, 2.1 cm.": "finding=mass@liver segment VI size=21@liver segment VI",
    "Right hepatic lobe mass measuring 5.4 x 4.9 x 4.0 cm.": (
        "finding=mass@right lobe of the liver size=54@right lobe of the liver"
    ),
    "Hepatic dome lesion of 9 mm.": "finding=mass@liver segment VIII size=9@liver segment VIII",
    "The pancreatic head contains a mass of 28 mm.": (
        "finding=mass@head of the pancreas size=28@head of the pancreas"
    ),
    "There is a mass centred on the uncinate process, 2.2 cm across.": (
        "finding=mass@uncinate process of the pancreas size=22@uncinate process of the pancreas"
    ),
    "A growth is identified arising from the greater curvature of the stomach, 6 cm.": (
        "finding=mass@greater curvature size=60@greater curvature"
    ),
    "Oesophagus: mid third, tumour, 4 cm.": (
        "finding=tumour@middle thoracic esophagus size=40@middle thoracic esophagus"
    ),
    "Caecal pole mass, 52 x 40 mm.": "finding=mass@cecum size=52@cecum",
    "Mass at the splenic flexure.": "finding=mass@splenic flexure",
    "A 4 cm mass in the tail of the pancreas abuts the stomach and the spleen.": (
        "finding=mass@tail of the pancreas size=40@tail of the pancreas"
    ),
    "The mass in the antrum is inseparable from the pancreas.": "finding=mass@gastric antrum",
    "Between the stomach and the spleen, arising from the pancreatic tail, is a 5 cm mass.": (
        "finding=mass@tail of the pancreas size=50@tail of the pancreas"
    ),
    "Left kidney: cyst, 14 mm. Right kidney: stone.": (
        "finding=cyst@left kidney size=14@left kidney finding=kidney_stone@right kidney"
    ),
    "Cyst of the right kidney (2 cm).": "finding=cyst@right kidney size=20@right kidney",
    "In the left lower lobe a 7 mm granuloma.": (
        "finding=granuloma@lower lobe of the left lung size=7@lower lobe of the left lung"
    ),
    "Mass involving the rectosigmoid.": "finding=mass@colon",
    "Liver. 2 cm cyst.": "finding=cyst@liver size=20@liver",
    "The stomach is well distended. A 3.4 cm mass is present in the body.": (
        "finding=mass@gastric body size=34@gastric body"
    ),
    "Pancreas: in the tail a mass.": "finding=mass@tail of the pancreas",
    "Mass, pancreatic tail, 43 mm, hypodense.": (
        "finding=mass@tail of the pancreas size=43@tail of the pancreas density=hypodense@tail "
        "of the pancreas"
    ),
    "Tumour is located in the sigmoid colon. It is round.": (
        "finding=tumour@sigmoid colon shape=round@sigmoid colon"
    ),
    "The lower third of the oesophagus shows a lesion.": "finding=mass@lower thoracic esophagus",
    "Lesion of the distal oesophagus just above the gastro-oesophageal junction.": (
        "finding=mass@lower thoracic esophagus"
    ),
    # attributes
    "The mass in the liver is well circumscribed.": (
        "finding=mass@liver boundary=well-defined@liver"
    ),
    "Liver mass with smooth margins.": "finding=mass@liver boundary=well-defined@liver",
    "Liver mass, margin sharp.": "finding=mass@liver boundary=well-defined@liver",
    "Liver mass. Its contours are blurred.": "finding=mass@liver boundary=ill-defined@liver",
    "Liver mass that is not sharply demarcated.": "finding=mass@liver boundary=ill-defined@liver",
    "Liver mass without clear borders.": "finding=mass@liver boundary=ill-defined@liver",
    "An ovoid, low-density mass of the liver.": (
        "finding=mass@liver shape=oval@liver density=hypodense@liver"
    ),
    "The liver mass appears denser than the surrounding parenchyma.": (
        "finding=mass@liver density=hyperdense@liver"
    ),
    "Liver mass of low attenuation relative to normal liver.": (
        "finding=mass@liver density=hypodense@liver"
    ),
    "A spherical liver mass, of the same density as the parenchyma.": (
        "finding=mass@liver shape=round@liver density=isodense@liver"
    ),
    "The liver mass is partly cystic, partly solid.": "finding=mass@liver density=mixed@liver",
    "The liver mass is of fluid attenuation.": "finding=mass@liver density=cystic@liver",
    "Lobulated gastric mass, calcifications within it.": (
        "finding=mass@stomach shape=lobulated@stomach others=calcification@stomach"
    ),
    "Gastric mass with necrotic centre and enhancing rim.": (
        "finding=mass@stomach others=necrosis@stomach others=rim_enhancement@stomach"
    ),
    "Pancreatic mass. The main pancreatic duct upstream is dilated to 7 mm.": (
        "finding=mass@pancreas others=ductal_dilatation@pancreas"
    ),
    "Gastric mass. The gastric wall is thickened.": (
        "finding=mass@stomach others=wall_thickening@stomach"
    ),
    "Liver mass. No calcification. No necrosis.": (
        "finding=mass@liver -others=calcification@liver -others=necrosis@liver"
    ),
    "Liver mass without rim enhancement.": "finding=mass@liver -others=rim_enhancement@liver",
    "Mass of the colon confined to the bowel wall.": "finding=mass@colon depth=wall@colon",
    "Colonic mass that does not extend beyond the wall.": "finding=mass@colon depth=wall@colon",
    "Colonic mass extending through the wall into the surrounding fat.": (
        "finding=mass@colon depth=fat@colon"
    ),
    "Colonic mass. It reaches the serosal surface.": "finding=mass@colon depth=surface@colon",
    "Gastric mass invading the spleen.": "finding=mass@stomach depth=neighbour@stomach",
    "Gastric mass. No invasion of adjacent organs. Perigastric fat is infiltrated.": (
        "finding=mass@stomach -depth=neighbour@stomach depth=fat@stomach"
    ),
    "Gastric tumour, 3 cm, limited to the inner layer of the wall.": (
        "finding=tumour@stomach size=30@stomach depth=inner_wall@stomach"
    ),
    # counts, nodes
    "Three hypodense masses in the liver, up to 3.1 cm.": (
        "count=3@liver finding=mass@liver density=hypodense@liver size=31@liver"
    ),
    "A solitary mass of the liver.": "count=1@liver finding=mass@liver",
    "Number of lesions: 2 in the liver.": "count=2@liver finding=mass@liver",
    "Pancreatic mass, 3 cm. Two enlarged regional nodes, short axis 12 and 14 mm.": (
        "finding=mass@pancreas size=30@pancreas finding=lymph_node@pancreas nodes=2@pancreas"
    ),
    "Pancreatic mass. Lymph nodes: not enlarged.": "finding=mass@pancreas -finding=lymph_node@",
    "Pancreatic mass. No pathologically enlarged nodes.": (
        "finding=mass@pancreas -finding=lymph_node@"
    ),
    "Pancreatic mass. Lymph nodes are within normal limits.": (
        "finding=mass@pancreas -finding=lymph_node@"
    ),
    "Pancreatic mass. Lymphadenopathy: absent.": "finding=mass@pancreas -finding=lymph_node@",
    "Pancreatic mass. A single enlarged lymph node lies near the pancreas (15 mm).": (
        "finding=mass@pancreas finding=lymph_node@pancreas nodes=1@pancreas"
    ),
    "Gastric mass with six perigastric nodes of 10-16 mm.": (
        "finding=mass@stomach finding=lymph_node@stomach nodes=6@stomach"
    ),
    "Gastric mass. Nodes x4.": "finding=mass@stomach finding=lymph_node@stomach nodes=4@stomach",
    "Gastric mass; enlarged nodes (n = 7) along the lesser curvature.": (
        "finding=mass@stomach finding=lymph_node@stomach nodes=7@stomach"
    ),
    # negation, hedges, time
    "No mass in the pancreas.": "-finding=mass@pancreas",
    "The pancreas is free of masses.": "-finding=mass@pancreas",
    "Pancreas: no mass, no cyst, no calcification.": (
        "-finding=mass@pancreas -finding=cyst@pancreas -finding=calcification@pancreas"
    ),
    "A pancreatic mass is not seen.": "-finding=mass@pancreas",
    "Negative for pancreatic mass.": "-finding=mass@pancreas",
    "Pancreatic mass was ruled out.": "-finding=mass@pancreas",
    "Neither the liver nor the spleen shows a mass.": "-finding=mass@liver -finding=mass@spleen",
    "Liver, spleen and pancreas are unremarkable.": (
        "-finding=mass@liver -finding=mass@spleen -finding=mass@pancreas"
    ),
    "Unremarkable liver and spleen.": "-finding=mass@liver -finding=mass@spleen",
    "The liver is normal in size.": "",
    "The remainder of the liver is normal.": "",
    "Possible mass in the cecum.": "?finding=mass@cecum",
    "A mass in the cecum cannot be excluded.": "?finding=mass@cecum",
    "? mass in the cecum": "?finding=mass@cecum",
    "Questionable lesion in the cecum.": "?finding=mass@cecum",
    "Metastases in the liver are suspected.": "~finding=metastasis@liver ~count=several@liver",
    "Likely metastasis in segment V.": "~finding=metastasis@liver segment V",
    "A mass in the liver, probably a haemangioma.": (
        "~finding=haemangioma@liver ~impression=hepatic_haemangioma@liver"
    ),
    "Lesion in segment II consistent with a cyst.": (
        "finding=cyst@liver segment II impression=hepatic_cyst@liver segment II"
    ),
    "Unchanged 3 cm mass in the pancreatic head.": (
        "finding=mass@head of the pancreas size=30@head of the pancreas"
    ),
    "Status post resection of a sigmoid mass.": "<finding=mass@sigmoid colon",
    "Previously seen liver cyst is unchanged.": "finding=cyst@liver",
    "The liver mass measures 4 cm (previously 3 cm).": (
        "finding=mass@liver size=40@liver <size=30@liver"
    ),
    "The liver mass has increased in size from 3 cm to 4 cm.": (
        "finding=mass@liver <size=30@liver size=40@liver"
    ),
    "The liver mass, 3 cm on the prior study, now measures 4 cm.": (
        "finding=mass@liver <size=30@liver size=40@liver"
    ),
    "The liver mass measures 4 cm, compared to 3 cm in 2019.": (
        "finding=mass@liver size=40@liver <size=30@liver"
    ),
    "Liver mass, was 30 mm, now 41 mm.": "finding=mass@liver <size=30@liver size=41@liver",
    "Liver mass 41 mm (30 mm on 12/03/2019).": "finding=mass@liver size=41@liver <size=30@liver",
    "Compared with the prior CT, the liver mass is stable at 22 mm.": (
        "finding=mass@liver size=22@liver"
    ),
    "The patient's mother had pancreatic cancer.": "",
    "Family history of colon cancer.": "",
    "The cyst described previously in the liver has resolved.": "-finding=cyst@liver",
    "If a mass is found in the colon, biopsy is advised.": "hfinding=mass@colon",
    "CT to evaluate for liver metastases.": "hfinding=metastasis@liver",
    # units
    "Liver mass of 3 cm.": "finding=mass@liver size=30@liver",
    "Liver mass of 3,2 cm.": "finding=mass@liver size=32@liver",
    "Liver mass 1.2 x 0.8.": "finding=mass@liver",
    "Liver mass, 25 mm from the capsule.": "finding=mass@liver",
    "Liver mass of 28mm, 5 mm slices.": "finding=mass@liver size=28@liver",
    "Liver mass measuring approximately 2.5 centimeters in greatest dimension.": (
        "finding=mass@liver size=25@liver"
    ),
    "Liver mass of 45 by 38 mm.": "finding=mass@liver size=45@liver",
    "Two liver masses measuring 45 mm and 3.1 cm respectively.": (
        "count=2@liver finding=mass@liver size=45@liver size=31@liver"
    ),
    # metastases
    "Pancreatic tumour, 4 cm, with metastases in the liver and left lung.": (
        "finding=tumour@pancreas size=40@pancreas finding=metastasis@liver count=several@liver "
        "finding=metastasis@left lung count=several@left lung"
    ),
    "The pancreatic tumour (4 cm) has spread to the liver.": (
        "finding=tumour@pancreas size=40@pancreas finding=metastasis@liver"
    ),
    "No hepatic or pulmonary metastases.": "-finding=metastasis@liver -finding=metastasis@lungs",
    "Pulmonary metastases in both lungs.": (
        "finding=metastasis@left lung finding=metastasis@right lung count=several@left lung "
        "count=several@right lung"
    ),
    "Liver metastases from colon cancer.": (
        "finding=metastasis@liver count=several@liver impression=tumour@colon"
    ),
    "Peritoneal carcinomatosis.": "finding=metastasis@peritoneum",
    # signs
    "The spleen is enlarged at 15 cm.": "finding=splenomegaly@spleen",
    "Splenomegaly.": "finding=splenomegaly@spleen",
    "The spleen is not enlarged.": "-finding=splenomegaly@spleen",
    "Nodular liver contour in keeping with cirrhosis.": "finding=cirrhosis@liver",
    "Acute pancreatitis with peripancreatic stranding.": (
        "finding=pancreatitis@pancreas finding=peripancreatic_fat_stranding@pancreas"
    ),
    "Cholelithiasis without biliary dilatation.": (
        "finding=gallstone@gallbladder -finding=ductal_dilatation@liver"
    ),
    "Sigmoid diverticulosis without diverticulitis.": (
        "finding=diverticulum@sigmoid colon -impression=diverticulitis@sigmoid colon"
    ),
    "Splenule at the splenic hilum.": "finding=accessory_spleen@spleen",
    "Aortic calcification.": "finding=vascular_calcification@aorta",
    # impression
    "Impression: Tumour of the pancreas.": "impression=tumour@pancreas",
    "Impression: No evidence of malignancy.": "impression=no_tumour@",
    "Impression: No tumour.": "impression=no_tumour@",
    "Findings: 3 cm mass in the pancreatic tail. Impression: Pancreatic cancer.": (
        "finding=mass@tail of the pancreas size=30@tail of the pancreas impression=tumour@tail "
        "of the pancreas"
    ),
    "Findings: 3 cm mass in the sigmoid. Impression: Suspicious for sigmoid adenocarcinoma.": (
        "finding=mass@sigmoid colon size=30@sigmoid colon "
        "~impression=colorectal_adenocarcinoma@sigmoid colon"
    ),
    "Impression: Hepatocellular carcinoma in segment VIII.": (
        "impression=hepatocellular_carcinoma@liver segment VIII"
    ),
    "Impression: Findings are suggestive of malignancy in the stomach.": (
        "~impression=tumour@stomach"
    ),
    # stages
    "Stage by imaging: T3 N1 M0.": "T=T3@ N=N1@ M=M0@",
    "cT4a, cN2b, cM1": "T=T4a@ N=N2b@ M=M1@",
    "T stage: T2. N stage: N0. M stage: M0.": "T=T2@ N=N0@ M=M0@",
    "TNM: T1bN0M0": "T=T1b@ N=N0@ M=M0@",
    "T category: 3; N category: 1; M category: 0": "T=T3@ N=N1@ M=M0@",
    "T: 3, N: 0, M: 0": "T=T3@ N=N0@ M=M0@",
    "Compression fracture of T12.": "",
    "The tumour would be staged as T3, N0, M0.": "impression=tumour@ T=T3@ N=N0@ M=M0@",
}


def written(fact: Fact) -> str:
    """Write a fact as `CASES` does."""
    sign = "-" if fact.polarity == "absent" else ""
    sign += {"current": "", "prior": "<", "hypothetical": "h"}[fact.time]
    if fact.time == "current" and fact.polarity == "present":
        sign += {"definite": "", "probable": "~", "possible": "?"}[fact.certainty]
    whole = fact.attribute in ("nodes", "count", "T", "N", "M", "others", "depth")
    where = fact.organ if whole or fact.value == "lymph node" else fact.part or fact.organ
    return f"{sign}{fact.attribute}={fact.value.replace(' ', '_')}@{where}"


@pytest.mark.parametrize("text", CASES)
def test_facts_of_a_text(text: str) -> None:
    facts = extract(Case("case", "patient", ("scan",), (Document("radiology", text),)))
    expected = CASES[text]
    listed = set(re.split(r" (?=[-<~?h]*[a-zA-Z]+=)", expected)) if expected else set()
    assert {written(fact) for fact in facts} == listed
    for fact in facts:
        assert text[fact.source.start : fact.source.end] == fact.source.quote
