"""unity_groups.py LINES HEADERS SOURCE...: groups of sources to compile as one, each of at most LINES lines.

Prints `SOURCE;GROUP` for each source. Two sources that give one name to different things of their own (in unnamed
namespaces) are never in one group, and one whose own name a header of the folder HEADERS has too is in a group alone. So
nobody needs to look for a name that no neighbour has.
"""
import re
import sys
from pathlib import Path

TYPE = re.compile(r'(?:template\s*<.*?>\s*)?(?:struct|class|enum(?:\s+class)?|union|using)\s+(\w+)\b(?!\s*::)')
FUNCTION = re.compile(r'([\w~]+)\s*\(')
VARIABLE = re.compile(r'([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$')


def without_text(source):
    """The source without comments, literals and preprocessor lines."""
    source = re.sub(r'R"(\w*)\(.*?\)\1"', '""', source, flags=re.S)
    source = re.sub(r'"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', '""', source)
    source = re.sub(r'//[^\n]*|/\*.*?\*/', '', source, flags=re.S)
    return re.sub(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', '', source, flags=re.M)


def declared_name(text):
    """What a declaration declares, as far as its text up to `{` or `;` tells."""
    text = ' '.join(text.split())
    if not text or text.startswith(('using namespace', 'namespace', 'static_assert')):
        return None
    if match := TYPE.match(text):
        return match[1]
    text = text.split('=', 1)[0].rstrip() if 'operator' not in text else text
    if match := FUNCTION.search(text):
        return match[1]
    match = VARIABLE.search(text)
    return match[1] if match else None


def declared_names(source, is_own):
    """Names declared in the source's namespaces, each with its namespace: in unnamed ones (`is_own`) or outside of them."""
    names, scopes, start = set(), [], 0
    text = without_text(source)
    for match in re.finditer(r'[{};]', text):
        segment = text[start:match.start()]
        start = match.end()
        namespace = re.search(r'\bnamespace\s*([\w:]*)\s*$', segment)
        if match[0] == '}':
            if scopes:
                scopes.pop()
            continue
        if None not in scopes and ('' in scopes) == is_own and not namespace and (name := declared_name(segment)):
            names.add(('::'.join(filter(None, scopes)), name))
        if match[0] == '{':
            scopes.append(namespace[1] if namespace else None)
    return names


def main():
    limit, headers = int(sys.argv[1]), Path(sys.argv[2])
    public = set().union(*(declared_names(path.read_text(encoding='utf-8'), False) for path in headers.rglob('*.h')))
    groups = []  # [lines, names]
    for path in sys.argv[3:]:
        source = Path(path).read_text(encoding='utf-8')
        names, lines = declared_names(source, True), source.count('\n')
        for index, group in enumerate(groups):
            if group[0] + lines <= limit and not group[1] & names and not public & names:
                break
        else:
            index = len(groups)
            groups.append([0, set()])
        groups[index][0] += limit if public & names else lines
        groups[index][1] |= names
        print(f'{path};{index}')


main()
