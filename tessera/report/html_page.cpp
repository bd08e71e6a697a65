#include "tessera/report/html_page.h"

#include "tessera/core/html_text.h"
#include "tessera/report/page_style.h"

namespace tessera::report {

std::string html_page(std::string_view begin, const std::string& title, const std::string& body) {
  const std::string text = html_text(title);
  return std::string(begin) +
         "<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, "
         "initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
         text + "</title>\n<style>" + kPageStyle + "</style>\n</head>\n<body>\n<h1>" + text + "</h1>\n" +
         body + "</body>\n</html>\n";
}

std::string html_table(const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<div class=\"wide\"><table>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    html += i == 0 ? "<thead><tr>" : "<tr>";
    for (size_t j = 0; j < rows[i].size(); ++j) {
      const char* tag = i == 0 ? "th scope=\"col\"" : j == 0 ? "th scope=\"row\"" : "td";
      html += std::string("<") + tag + ">" + html_text(rows[i][j]) + (i == 0 || j == 0 ? "</th>" : "</td>");
    }
    html += i == 0 ? "</tr></thead>\n<tbody>\n" : "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace tessera::report
