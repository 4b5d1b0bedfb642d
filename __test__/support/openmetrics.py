# Reads OpenMetrics text from stdin with the parser of the Prometheus project, and says as JSON what is in it.
import json
import math
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

text = sys.stdin.buffer.read().decode("utf-8")
families = []
for family in text_string_to_metric_families(text):
    samples = [
        {"name": s.name, "labels": s.labels, "value": None if math.isnan(s.value) else str(s.value)}
        for s in family.samples
    ]
    families.append(
        {"name": family.name, "type": family.type, "unit": family.unit, "help": family.documentation, "samples": samples}
    )
json.dump(families, sys.stdout)
