// How the page looks.
#pragma once

namespace tessera::report {

inline constexpr const char* kPageStyle = R"css(
:root { --ink: #1b1f24; --soft: #6a737d; --rule: #d7dce1; --paper: #fff; --box: #f6f8fa }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --soft: #98a2ad; --rule: #3a424b; --paper: #14181d; --box: #1d232a }
}
body { margin: 2rem auto; max-width: 1240px; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--paper) }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 0 0 1.5rem }
th, td { padding: .3rem .8rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: pre;
  font-weight: normal; vertical-align: top }
th:first-child { text-align: left } thead th { color: var(--soft); white-space: normal; vertical-align: bottom }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 480px), 1fr)); gap: 1.5rem }
figure { margin: 0; position: relative } figcaption { font-weight: 600 }
svg { width: 100%; height: auto; display: block }
svg text { font-size: 12px; fill: var(--soft) }
text.left { text-anchor: end } text.below { text-anchor: middle }
line.grid { stroke: var(--rule) } line.axis { stroke: var(--soft) } line.pointer { stroke: var(--soft) }
polyline { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round }
polyline.dashed { stroke-dasharray: 6 4 } polyline.faint { opacity: .3; stroke-width: 1 }
polygon.area { fill: currentColor; opacity: .75; stroke: none } circle { fill: currentColor }
.legend { display: flex; flex-wrap: wrap; gap: 0 1rem; font-size: 13px }
.key::before { content: ""; display: inline-block; width: 1.2em; margin-right: .4em; vertical-align: middle;
  border-top: 3px solid }
.key.dashed::before { border-top-style: dashed }
.note, .missing { font-weight: normal; color: var(--soft) }
path.warning { stroke: currentColor; stroke-width: 1; stroke-dasharray: 2 3; opacity: .7; fill: none }
path.checkpoint { fill: currentColor; opacity: .8 }
svg:focus-visible, summary:focus-visible, .wide:focus-visible { outline: 2px solid var(--soft); outline-offset: 1px }
.values { margin: 0; font-size: 13px } .values summary { color: var(--soft); cursor: pointer }
.values .wide { max-height: 16rem; overflow: auto }
.values thead th { position: sticky; top: 0; background: var(--paper) }
.choices:not([hidden]) { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; align-items: center; position: sticky;
  top: 0; z-index: 2; padding: .5rem 0; margin-bottom: .5rem; background: var(--paper); border-bottom: 1px solid var(--rule) }
.choices input { vertical-align: middle } .choices output { color: var(--soft); font-size: 13px }
.told { position: absolute; pointer-events: none; padding: .3rem .6rem; font-size: 13px; white-space: pre-wrap;
  width: max-content; overflow-wrap: anywhere;
  color: var(--ink); background: var(--box); border: 1px solid var(--rule); border-radius: 4px; z-index: 1 }
.color-0 { color: #0b72b9 } .color-1 { color: #d55e00 } .color-2 { color: #1a9a6c } .color-3 { color: #c05f9a }
.color-4 { color: #b58900 } .color-5 { color: #4aa3df } .color-6 { color: #8a5cd0 } .color-7 { color: #7a8288 }
.color-8 { color: #a0522d } .color-9 { color: #3f8f29 }
@media (prefers-color-scheme: dark) {
  .color-0 { color: #4f9fe0 } .color-1 { color: #f08a45 } .color-2 { color: #35c08d } .color-3 { color: #dd85bb }
  .color-4 { color: #d9b13b } .color-5 { color: #8ccaf5 } .color-6 { color: #b08cf0 } .color-7 { color: #a3abb2 }
  .color-8 { color: #cf8257 } .color-9 { color: #74c25c }
}
.samples table { width: 100%; min-width: 44rem; table-layout: fixed }
.samples th, .samples td { text-align: left; white-space: pre-wrap; overflow-wrap: anywhere }
.samples th:first-child { width: 6rem } .samples td > div { max-height: 20rem; overflow-y: auto }
.samples div:focus-visible { outline: 2px solid var(--soft); outline-offset: 1px }
@media (max-width: 40rem) {
  body { margin: 1rem auto } th, td { padding: .3rem .5rem } .choices:not([hidden]) { position: static }
  .samples table { min-width: 0 } .samples thead { display: none }
  .samples :is(table, tbody, tr, th, td) { display: block; width: auto }
  .samples th:first-child { width: auto } .samples td { border-bottom: none } .samples tbody th { border-bottom: none; font-weight: 600 }
  .samples tr { border-bottom: 1px solid var(--rule); margin-bottom: .5rem }
  .samples td::before { content: attr(data-name); display: block; color: var(--soft) }
}
details { margin: .5rem 0 } pre { padding: 1rem; overflow-x: auto; background: var(--box) }
)css";

}  // namespace tessera::report
