"""Lists every public name of the packages that others prepare data with, and says for each what it is called here: a step, words
for the same, or nothing and why. Fails where a name has no answer.

The names come from the source of the installed packages, none of which is imported: `__all__` of a module, else what it
defines and imports from its own package. The answers are the tables of `pipelines/docs/coming-from`."""

import argparse
import ast
import importlib.metadata
import re
import sys
from collections import Counter
from pathlib import Path

PAGES = Path(__file__).resolve().parent.parent.parent / "pipelines" / "docs" / "coming-from"

# By page: the package, and its modules with what users call.
PACKAGES = {
    "tf-transform": ("tensorflow_transform", [""]),
    "nvtabular": ("nvtabular", ["ops"]),
    "scikit-learn": (
        "sklearn",
        ["preprocessing", "impute", "feature_extraction", "feature_extraction.text", "feature_extraction.image", "feature_selection"],
    ),
    "category-encoders": ("category_encoders", [""]),
    "feature-engine": (
        "feature_engine",
        "creation datetime discretisation encoding imputation outliers pipeline preprocessing scaling selection text timeseries "
        "timeseries.forecasting transformation variable_handling datasets wrappers".split(),
    ),
    "mlforecast": (
        "mlforecast",
        ["", "auto", "callbacks", "conformal_prediction", "core", "feature_engineering", "lag_transforms", "lgb_cv", "optimization",
         "distributed", "pooled", "target_transforms", "utils"],
    ),
    "utilsforecast": (
        "utilsforecast",
        ["data", "evaluation", "feature_engineering", "losses", "model_selection", "plotting", "preprocessing", "processing", "rectify",
         "validation"],
    ),
}  # fmt: skip

# Names that transform nothing, by reason.
NO_TRANSFORMS = {
    "a module": "coders experimental image text forecasting",
    "a class that others derive from": "SelectorMixin Operator StatOperator BaseTargetTransform",
    "a score of a column, which `keep_best` has as `score`": "chi2 f_classif f_oneway f_regression mutual_info_classif "
    "mutual_info_regression r_regression",
    "a selection of columns, which `columns` is": "ColumnSelector",
}

# Begins of answers that are code of the user.
WRITTEN = ("`- derive", "`- filter", "`- python", "`- command", "`- estimator")

# Modules whose functions transform nothing of their own, by reason.
HELPERS = {("utilsforecast", "processing"): "one call for pandas and Polars, whose names are on the page of pandas"}

# By package: the distributions that install it.
DISTRIBUTIONS = importlib.metadata.packages_distributions()


def answers(page):
    """By name in lower case without signs: the answer and its note."""
    known = {}
    for line in (PAGES / f"{page}.md").read_text().splitlines():
        if line.startswith("| `"):
            names, answer, note = (cell.strip() for cell in re.split(r" \| ?", line.strip("| ") + " | ", maxsplit=2))
            for name in re.findall(r"`([^`]+)`", names):
                known[bare(name)] = answer, note.strip("| ")
    return known


def bare(name):
    return re.sub("[^a-z0-9]", "", name.rsplit(".", 1)[-1].lower())


def source(package, module):
    """The file of a module, which is not imported."""
    top = Path(str(importlib.metadata.distribution(DISTRIBUTIONS[package][0]).locate_file(package)))
    folder = top.joinpath(*module.split(".")) if module else top
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def public_names(package, module):
    """What a module offers: `__all__`, else its own definitions and imports."""
    tree = ast.parse(source(package, module).read_text())
    listed, defined = [], []
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                listed += [element.value for element in getattr(node.value, "elts", [])]
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            defined.append(node.name)
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith(package)):
            defined += [alias.asname or alias.name for alias in node.names]
    return sorted({name for name in listed or defined if not name.startswith("_") and name != "*"})


def main():
    parser = argparse.ArgumentParser(
        prog="benches/coverage/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", help=f"{', '.join(PACKAGES)} [all]")
    parser.add_argument("--missing", action="store_true", help="only names that have nothing for them here")
    options = parser.parse_args()
    reasons = {name: reason for reason, names in NO_TRANSFORMS.items() for name in names.split()}
    unanswered, counts = [], {}
    for page in options.pages or PACKAGES:
        package, modules = PACKAGES[page]
        known, count = answers(page), Counter()
        version = importlib.metadata.version(DISTRIBUTIONS[package][0])
        print(f"\n{package} {version}")
        names = {name: module for module in modules for name in public_names(package, module)}
        for name, module in sorted(names.items()):
            answer, note = known.get(bare(name), ("", ""))
            reason = reasons.get(name, HELPERS.get((package, module), ""))
            if not answer and reason:
                answer, note = "*no transform*", reason
            kind = kind_of(answer)
            count[kind] += 1
            if kind == "unanswered":
                unanswered.append(f"{package}: {name}")
            if not options.missing or kind == "not":
                print(f"  {name}: {answer}{' ' if note else ''}{note}")
        counts[f"{package} {version}"] = count
    kinds = ("here as", "written as", "not", "no transform", "unanswered")
    print("\n" + " | ".join(("package", "names", *kinds)))
    for package, count in counts.items():
        print(" | ".join((package, str(count.total()), *(str(count[kind]) for kind in kinds))))
    for name in unanswered:
        print(f"FAILED  no answer to {name}")
    sys.exit(1 if unanswered else 0)


def kind_of(answer):
    """Kinds of answers: a step of its own, other steps or words, or none."""
    if answer in ("", "*missing*", "*no transform*"):
        return {"": "unanswered", "*missing*": "not", "*no transform*": "no transform"}[answer]
    is_step = answer.startswith("`- ") and not answer.startswith(WRITTEN)
    return "here as" if is_step else "written as"


if __name__ == "__main__":
    main()
