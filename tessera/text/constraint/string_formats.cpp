#include "tessera/text/constraint/string_formats.h"

namespace tessera::text {
namespace {

struct Format {
  const char *name, *pattern;
};

// Every year has these days; the 29th of February is left out.
#define DATE                                                                                                \
  "\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|" \
  "1\\d|2[0-8]))"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define HOST LABEL "(?:\\." LABEL ")*"
#define ATOM "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define WORD "[0-9a-fA-F]{1,4}"
#define URI_CHAR "(?:[a-zA-Z0-9._~:/?@!$&'()*+,;=-]|%[0-9a-fA-F]{2})"

constexpr Format kFormats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration",
     "^P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:"
     "\\d+S)?|\\d+S))?|T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))$"},
    {"email", "^" ATOM "(?:\\." ATOM ")*@" HOST "$"},
    {"hostname", "^" HOST "$"},
    {"ipv4", "^" BYTE "(?:\\." BYTE "){3}$"},
    {"ipv6",
     "^(?:(?:" WORD ":){7}" WORD "|(?:" WORD ":){1,7}:|(?:" WORD ":){1,6}:" WORD "|(?:" WORD
     ":){1,5}(?::" WORD "){1,2}|(?:" WORD ":){1,4}(?::" WORD "){1,3}|(?:" WORD ":){1,3}(?::" WORD
     "){1,4}|(?:" WORD ":){1,2}(?::" WORD "){1,5}|" WORD ":(?::" WORD "){1,6}|:(?:(?::" WORD "){1,7}|:))$"},
    {"uuid", "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
    {"uri", "^[a-zA-Z][a-zA-Z0-9+.-]*:" URI_CHAR "+(?:#" URI_CHAR "*)?$"}};

}  // namespace

const char* format_pattern(const std::string& format) {
  for (const Format& each : kFormats) {
    if (format == each.name) return each.pattern;
  }
  return nullptr;
}

std::string format_names() {
  std::string names;
  for (const Format& each : kFormats) names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

}  // namespace tessera::text
