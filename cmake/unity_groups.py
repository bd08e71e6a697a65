"""Groups of sources to compile as one.

unity_groups.py headers ROOT                 prints, as JSON, what each header below ROOT declares and includes
unity_groups.py group LINES ROOT HEADERS OUT SOURCE...
                                             writes groups of the sources, each of about LINES lines, and prints their files

HEADERS is the file of what the first call prints. A group is a file below OUT that includes its sources as seen from ROOT.
No two sources of a group give one name to different things: neither two of their own (in unnamed namespaces), nor one's own
and one of a header that the other includes. So nobody needs to look for a name that no neighbour has.
"""
import json
import re
import sys
from pathlib import Path

TYPE = re.compile(r'(?:template\s*<.*?>\s*)?(?:struct|class|enum(?:\s+class)?|union|using)\s+(\w+)\b(?!\s*::)')
FUNCTION = re.compile(r'([\w~]+)\s*\(')
TEST = re.compile(r'(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_SUITE|INSTANTIATE_TEST_SUITE_P)\s*\(\s*(\w+)\s*,\s*(\w+)')
ASSIGNED = re.compile(r'(\w+)\s*(?:\[[^\]]*\]\s*)*=(?!=)')
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
VARIABLE = re.compile(r'([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$')


def without_text(source):
    """The source without comments, literals and preprocessor lines."""
    source = re.sub(r'R"(\w*)\(.*?\)\1"', '""', source, flags=re.S)
    source = re.sub(r'"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', '""', source)
    source = re.sub(r'//[^\n]*|/\*.*?\*/', '', source, flags=re.S)
    return re.sub(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', '', source, flags=re.M)


def declared_by(text):
    """The names that a declaration declares, as far as its text up to `{` or `;` tells."""
    text = ' '.join(text.split())
    if not text or text.startswith(('using namespace', 'namespace', 'static_assert')):
        return []
    if text.startswith('using ') and '=' not in text:  # Saying it twice is no clash.
        return []
    if match := TYPE.match(text) or TEST.match(text):
        return ['_'.join(match.groups())]
    if assigned := ASSIGNED.findall(text) if 'operator' not in text else []:
        head = text.split('=', 1)[0]
        if '(' not in head:  # Variables, of which a line may declare many.
            return assigned
        text = head
    match = FUNCTION.search(text) or VARIABLE.search(text)
    return [match[1]] if match else []


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
        if None not in scopes and ('' in scopes) == is_own and not namespace:
            names.update(('::'.join(filter(None, scopes)), name) for name in declared_by(segment))
        if match[0] == '{':
            scopes.append(namespace[1] if namespace else None)
    return names


def read_headers(root):
    """For each header, as seen from the root: the names that it declares for all, and the headers that it includes."""
    headers = {}
    for path in sorted(path for folder in ('tessera', 'tests') for path in (root / folder).rglob('*.h')):
        text = path.read_text(encoding='utf-8')
        names = sorted(' '.join(name) for name in declared_names(text, False) | declared_names(text, True))
        headers[str(path.relative_to(root))] = {'names': names, 'includes': INCLUDE.findall(text)}
    return headers


def names_of_includes(text, headers):
    """The names of all headers that a source of this text includes, directly or not."""
    names, seen, ahead = set(), set(), INCLUDE.findall(text)
    while ahead:
        path = ahead.pop()
        if path in headers and path not in seen:
            seen.add(path)
            names.update(headers[path]['names'])
            ahead.extend(headers[path]['includes'])
    return names


class Group:
    """Sources that are compiled as one."""

    def __init__(self):
        self.lines, self.own, self.public, self.sources = 0, set(), set(), []

    def takes(self, lines, own, public, limit):
        clashes = self.own & own or self.own & public or self.public & own
        return self.lines + lines <= limit and not clashes

    def add(self, source, lines, own, public):
        self.lines += lines
        self.own |= own
        self.public |= public
        self.sources.append(source)


def grouped(sources, limit, headers):
    groups = []
    for source in sources:
        text = source.read_text(encoding='utf-8')
        own = {' '.join(name) for name in declared_names(text, True)}
        facts = text.count('\n'), own, names_of_includes(text, headers)
        group = next((each for each in groups if each.takes(*facts, limit)), None)
        if group is None:
            groups.append(group := Group())
        group.add(source, *facts)
    return groups


def write_groups(limit, root, headers, out, sources):
    out.mkdir(parents=True, exist_ok=True)
    for number, group in enumerate(grouped(sources, limit, headers)):
        path = out / f'group_{number}.cpp'
        text = ''.join(f'#include "{source.relative_to(root)}"\n' for source in group.sources)
        # A file that stays as it is keeps its time, and is not compiled again.
        if not path.exists() or path.read_text(encoding='utf-8') != text:
            path.write_text(text, encoding='utf-8')
        print(path)


def main():
    if sys.argv[1] == 'headers':
        print(json.dumps(read_headers(Path(sys.argv[2]))))
        return
    limit, root, headers, out, *sources = sys.argv[2:]
    headers = json.loads(Path(headers).read_text(encoding='utf-8'))
    write_groups(int(limit), Path(root), headers, Path(out), [Path(source) for source in sources])


main()
