#include "tessera/report/dashboard_page.h"

#include "tessera/report/chart_script.h"
#include "tessera/report/dashboard_data_script.h"
#include "tessera/report/dashboard_script.h"
#include "tessera/report/html_page.h"
#include "tessera/report/page_script.h"
#include "tessera/report/run_charts.h"
#include "tessera/report/samples_script.h"

namespace tessera::report {
namespace {

constexpr const char* kBegin = "<!DOCTYPE html>\n<html lang=\"en\">\n";

constexpr const char* kRunTable = R"html(<noscript>This page needs JavaScript.</noscript>
<p id="followed" role="status">reads the runs</p>
<div class="wide" tabindex="0"><table id="runs"><thead></thead><tbody></tbody></table></div>
)html";

constexpr const char* kRest = R"html(<div class="charts"></div>
<div id="samples"></div>
<details id="marks" hidden><summary></summary><div class="wide" tabindex="0"><table><thead></thead><tbody></tbody></table></div></details>
<div id="recipes"></div>
)html";

}  // namespace

std::string dashboard_page() {
  return html_page(kBegin, "Training runs",
                   std::string(kRunTable) + kChoices + kRest + "<script>" + kChartScript + kPageScript +
                       "const known = " + chart_rows_text() + ";\n" + kDashboardDataScript + kSamplesScript +
                       kDashboardScript + "</script>\n");
}

}  // namespace tessera::report
