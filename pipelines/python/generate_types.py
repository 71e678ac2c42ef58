"""Writes the parts of the package that follow from the schema of specs (`pipelines/spec.schema.json`).

    python generate_types.py           writes them
    python generate_types.py --check   fails where they are not up to date

`forebay/spec.py` holds the types of a spec; `transforms.py`, `sources.py` and `sinks.py` a function for each kind, with
an argument for each field, so that editors complete them and `help()` describes them.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCHEMA = json.loads((HERE.parent / "spec.schema.json").read_text())
DEFINITIONS: dict[str, Any] = SCHEMA["$defs"]
WIDTH = 116
GENERATED = "Generated from the schema of specs by `generate_types.py`: change that, not this."
IMPORTS = "from collections.abc import Mapping, Sequence\nfrom typing import Any, Literal\n\nfrom . import spec\n"
SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def type_of(schema: Any, prefix: str = "") -> str:
    """The Python type of a value; names of definitions follow `prefix`."""
    if schema is True or not schema:
        return "Any"
    if "$ref" in schema:
        return prefix + schema["$ref"].rpartition("/")[2]
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    for several in ("anyOf", "oneOf"):
        if several in schema and "properties" not in schema:
            return union(type_of(one, prefix) for one in schema[several])
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return union(type_of({**schema, "type": kind}, prefix) for kind in kinds)
    if kinds == "array":
        return f"Sequence[{type_of(schema.get('items'), prefix)}]"
    if kinds == "object":
        return object_type(schema, prefix)
    return SCALARS.get(kinds, "Any")


def object_type(schema: dict[str, Any], prefix: str) -> str:
    """The type of a mapping; one with a single field is what the language calls a choice."""
    fields = schema.get("properties")
    if not fields:
        return f"Mapping[str, {type_of(schema.get('additionalProperties', True), prefix)}]"
    values = union(type_of(field, prefix) for field in fields.values())
    return f"Mapping[Literal[{', '.join(map(repr, fields))}], {values}]"


def union(types: Iterator[str]) -> str:
    """One of several types, each once."""
    parts: list[str] = []
    for one in types:
        parts += [one] if one.startswith("Literal") else split_union(one)
    literals = [part[len("Literal[") : -1] for part in parts if part.startswith("Literal[")]
    found = dict.fromkeys(part for part in parts if not part.startswith("Literal["))
    if literals:
        found = {f"Literal[{', '.join(dict.fromkeys(literals))}]": None, **found}
    if "None" in found:
        found.pop("None")
        found["None"] = None
    return " | ".join(found)


def split_union(text: str) -> list[str]:
    """The parts of `a | b[c | d]`, not those in brackets."""
    parts, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if sign == "|" and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [*parts, text[begin:].strip()]


def fields_of(schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fields of a definition and those that have to be given; of several alternatives those of all."""
    if "$ref" in schema:
        return fields_of(DEFINITIONS[schema["$ref"].rpartition("/")[2]])
    if "properties" in schema:
        return schema["properties"], schema.get("required", [])
    fields: dict[str, Any] = {}
    needed: list[str] | None = None
    for one in schema.get("anyOf", []):
        more, required = fields_of(one)
        for name, field in more.items():
            known = fields.get(name)
            fields[name] = field if known is None or known == field else {"anyOf": [known, field], **text_of(known)}
        needed = list(required) if needed is None else [name for name in needed if name in required]
    return fields, needed or []


def text_of(field: dict[str, Any]) -> dict[str, Any]:
    """The description of a field."""
    return {"description": field["description"]} if "description" in field else {}


def described(schema: dict[str, Any]) -> str:
    """What a definition or a field is."""
    if "description" in schema:
        # Examples in Rust are not for here.
        return re.sub(r"\n*```.*?```", "", str(schema["description"]), flags=re.DOTALL).strip()
    if "$ref" in schema:
        return described(DEFINITIONS[schema["$ref"].rpartition("/")[2]])
    return ""


def argument(name: str) -> str:
    """A field's name as an argument; words of Python get an underscore."""
    return name + "_" if keyword.iskeyword(name) else name


def wrapped(text: str, indent: int, first: str = "", hanging: int = 0) -> str:
    """Paragraphs of a docstring."""
    out = []
    for number, paragraph in enumerate(text.split("\n\n")):
        begin = " " * indent + (first if number == 0 else " " * hanging)
        follow = " " * (indent + hanging)
        words = re.sub(r"\s+", " ", paragraph).replace("\\", "\\\\")
        out.append(textwrap.fill(words, WIDTH, initial_indent=begin, subsequent_indent=follow, break_long_words=False))
    return "\n\n".join(out)


def default_text(field: dict[str, Any]) -> str:
    """The default of a field, where it says something."""
    default = field.get("default")
    return "" if default is None or default in ([], {}, "default") else f" Default: {json.dumps(default)}."


def function(name: str, text: str, body: str, fields: dict[str, Any], needed: list[str], first: str | None) -> str:
    """A function with an argument for each field; `first` may be given by its position."""
    prefix = "spec."
    lines, docs = [], []
    order = sorted(fields, key=lambda field: (field != first, field not in needed))
    for field in order:
        kind = type_of(fields[field], prefix)
        optional = field not in needed
        if optional and "None" not in split_union(kind):
            kind += " | None"
        lines.append(f"    {argument(field)}: {kind}" + (" = None," if optional else ","))
        if field == first and len(fields) > 1:
            lines.append("    *,")
        told = described(fields[field]) + default_text(fields[field])
        docs.append(wrapped(told, 4, f"{argument(field)}: ", 4))
    if first is None and lines:
        lines.insert(0, "    *,")
    head = f"def {argument(name)}(\n" + "\n".join(lines) + f"\n) -> {body.split(' ')[0]}:\n"
    doc = wrapped(text, 4).lstrip()
    listed = "\n" + "\n".join(docs) + "\n    " if docs else ""
    return f'{head}    """{doc}\n{listed}"""\n    {body.partition(" ")[2]}\n'


def module(doc: str, parts: list[str], imports: str, imported: tuple[str, ...] = ()) -> str:
    """The text of a module; `imported` are names for users that it imports."""
    names = re.findall(r"^(?:def )?([A-Za-z]\w*)(?: = |\()", "\n".join(parts), re.MULTILINE)
    names += imported
    listed = "".join(f'    "{name}",\n' for name in sorted(set(names)))
    return (
        f'"""{doc}\n\n{GENERATED}\n"""\n\n# ruff: noqa\n\nfrom __future__ import annotations\n\n{imports}\n'
        f"__all__ = [\n{listed}]\n\n\n" + "\n\n".join(parts)
    )


def spec_module() -> str:
    """The types of a spec."""
    parts = []
    for name, schema in DEFINITIONS.items():
        if name == "AnyTransform":
            fields = {key: one["properties"][key] for one in schema["oneOf"] for key in one["properties"]}
            parts.append(typed_dict("AnyTransform", fields, []))
        elif "properties" in schema:
            parts.append(typed_dict(name, schema["properties"], schema.get("required", [])))
        else:
            parts.append(f'{name}: TypeAlias = "{escaped(type_of(schema))}"\n')
    parts.append(typed_dict("Spec", SCHEMA["properties"], SCHEMA["required"]))
    imports = (
        "from collections.abc import Mapping, Sequence\n"
        "from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict\n\n"
        "if TYPE_CHECKING:\n    from typing_extensions import Required\n"
    )
    text = module("The types of a spec: dictionaries with the fields of the YAML language.", parts, imports)
    names = sorted([*DEFINITIONS, "Spec"])
    return re.sub(
        r"__all__ = \[\n.*?\]\n", "__all__ = [\n" + "".join(f'    "{n}",\n' for n in names) + "]\n", text, flags=re.S
    )


def escaped(text: str) -> str:
    """A type in a text in double quotes."""
    return text.replace('"', '\\"')


def typed_dict(name: str, fields: dict[str, Any], needed: list[str]) -> str:
    """A dictionary whose fields may be words of Python."""
    lines = []
    for field, schema in fields.items():
        kind = type_of(schema)
        kind = f"Required[{kind}]" if field in needed else kind
        lines.append(f'        "{field}": "{escaped(kind)}",\n')
    return f'{name} = TypedDict(\n    "{name}",\n    {{\n{"".join(lines)}    }},\n    total=False,\n)\n'


def transforms_module() -> str:
    """A function for each transform."""
    parts = []
    for one in DEFINITIONS["AnyTransform"]["oneOf"]:
        [(name, schema)] = one["properties"].items()
        definition = DEFINITIONS[schema["$ref"].rpartition("/")[2]]
        if "properties" in definition:
            fields, needed = fields_of(definition)
            body = f'spec.AnyTransform return made("{name}", locals())'
            first = "columns" if "columns" in needed else None
        else:
            # A text, a list or a map stands alone.
            fields, needed, first = (
                {"value": {**schema, "description": "What the language has under the name."}},
                ["value"],
                "value",
            )
            body = f'spec.AnyTransform return alone("{name}", value)'
        parts.append(function(name, described(one), body, fields, needed, first))
    doc = "What steps do: a function for each transform, with the names of the YAML language."
    imports = IMPORTS + "from ._functions import fit_estimator, map_batches\nfrom ._made import alone, made\n"
    return module(doc, parts, imports, ("fit_estimator", "map_batches"))


def connector_module(kind: str, doc: str) -> str:
    """A function for each format of a source or a sink."""
    definition = DEFINITIONS[kind]
    formats = [one["required"][0] for one in definition["oneOf"]]
    common = {name: field for name, field in definition["properties"].items() if name not in formats}
    parts = []
    for name in formats:
        fields, needed = fields_of(definition["properties"][name])
        clash = set(fields) & set(common)
        assert not clash, f"{kind} {name}: {clash}"
        text = described(definition["properties"][name])
        body = f'spec.{kind} return {kind.lower()}("{name}", {tuple(common)!r}, locals())'
        required = [*definition.get("required", []), *needed]
        parts.append(function(name, text, body, {**fields, **common}, required, "path" if "path" in fields else None))
    return module(doc, parts, IMPORTS + f"from ._made import {kind.lower()}\n")


FILES = {
    "spec.py": spec_module,
    "transforms.py": transforms_module,
    "sources.py": lambda: connector_module("Source", "Where data comes from: a function for each format."),
    "sinks.py": lambda: connector_module("Sink", "Where output goes: a function for each format."),
}


def main() -> int:
    """Writes or checks the files."""
    stale = []
    for name, make in FILES.items():
        path, text = HERE / "forebay" / name, make()
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(name)
    if stale:
        print(f"not up to date: {', '.join(stale)}; run `python pipelines/python/generate_types.py`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
