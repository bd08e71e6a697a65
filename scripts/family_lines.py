#!/usr/bin/env python3
"""family_lines.py TRANSFORMERS MLX_LM [--write]: lines of code of each family of models here, beside those of Transformers and
mlx-lm, whose installed folders are given. --write puts the table into docs/adding-a-model.md.

Lines are those that hold code: no blank lines, comments, docstrings. Of Transformers the modular file counts where there
is one (it names what it takes over from other families), else the modeling file; both come with a configuration file.
"""
import argparse
import io
import pathlib
import re
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ROOT / "tessera" / "models"
PAGE = ROOT / "docs" / "adding-a-model.md"
BEGIN, END = "<!-- lines: begin -->", "<!-- lines: end -->"
# Names of a model type where a project calls its folder or file otherwise.
OTHER = {"gemma3_text": "gemma3", "gemma4_text": "gemma4", "llama4_text": "llama4", "qwen3_5_text": "qwen3_5", "qwen3_5_moe_text": "qwen3_5_moe"}


def cpp_lines(path):
    code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    return sum(1 for line in code.splitlines() if line.split("//")[0].strip())


def python_lines(path):
    """Lines with code: those of tokens that are no comments and no strings that stand alone."""
    lines, before = set(), tokenize.NEWLINE
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
               tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        is_docstring = token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type not in skipped and not is_docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type
    return len(lines)


def of_transformers(folder, name):
    folder = folder / "models" / OTHER.get(name, name)
    kinds = [next((file for kind in group if (file := folder / f"{kind}_{folder.name}.py").exists()), None)
             for group in (("modular", "modeling"), ("configuration",))]
    # A modular file has the configuration, too.
    files = kinds[:1] if kinds[0] and kinds[0].name.startswith("modular") else kinds
    return sum(python_lines(file) for file in files if file)


def of_mlx(folder, name):
    for known in (name, OTHER.get(name, name)):
        if (file := folder / "models" / f"{known}.py").exists():
            return python_lines(file)
    return 0


def families():
    """Model types by the file that reads their config.json."""
    registry = (MODELS / "registry.cpp").read_text()
    readers = dict(re.findall(r'described<(\w+)>\("(\w+)"\)', registry))
    found = {}
    for file in sorted((MODELS / "families").glob("*.cpp")):
        text = file.read_text()
        types = [readers[name] for name in re.findall(r"^DecoderConfig (read_\w+)\(", text, re.MULTILINE) if name in readers]
        if types:
            found[file] = types
    return found


def table(transformers, mlx):
    rows, sums = [], [0, 0, 0]
    for file, types in families().items():
        counts = [cpp_lines(file), sum(of_transformers(transformers, name) for name in types),
                  sum(of_mlx(mlx, name) for name in types)]
        missing = [name for name in types if of_mlx(mlx, name) == 0]
        note = "" if not missing else f" (without {', '.join(missing)})"
        rows.append(f"| `families/{file.name}` | {', '.join(types)} | {counts[0]} | {counts[1]} | {counts[2]}{note} |")
        sums = [a + b for a, b in zip(sums, counts)]
    shared = sum(cpp_lines(file) for file in (MODELS / "decoder").glob("*.cpp"))
    return "\n".join(["| file | families | here | Transformers | mlx-lm |", "|---|---|---|---|---|", *rows,
                      f"| all | | {sums[0]} | {sums[1]} | {sums[2]} |",
                      f"| what they share: `models/decoder/` | | {shared} | | |"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transformers", type=pathlib.Path)
    parser.add_argument("mlx_lm", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    text = table(arguments.transformers, arguments.mlx_lm)
    if not arguments.write:
        print(text)
        return
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


main()
