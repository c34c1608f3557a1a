"""The style of the comparison's page."""

STYLE = """
:root {
  color-scheme: light dark;
  font: 16px/1.45 system-ui, sans-serif;
  --paper: light-dark(#ffffff, #0d1117);
  --card: light-dark(#f6f8fa, #151b23);
  --line: light-dark(#d1d9e0, #3d444d);
  --ink: light-dark(#1f2328, #e6edf3);
  --soft: light-dark(#59636e, #9198a1);
  --better: light-dark(#1a7f37, #3fb950);
  --worse: light-dark(#cf222e, #f85149);
  --m0: light-dark(#8c959f, #768390);
  --m1: light-dark(#0969da, #4493f8);
  --m2: light-dark(#d4760a, #e3962b);
  --m3: light-dark(#1b7c83, #39c5cf);
  --m4: light-dark(#8250df, #ab7df8);
  --m5: light-dark(#bf3989, #db61a2);
}
* { box-sizing: border-box; }
body { max-width: 64rem; margin: 2rem auto; padding: 0 1.25rem; }
body { background: var(--paper); color: var(--ink); }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; line-height: 1.3; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h3, h4 { font-size: .95rem; margin: 0; }
.soft { color: var(--soft); font-size: .875rem; margin: 0 0 .8rem; }
section { margin: 2.2rem 0 0; }
.summary { list-style: none; margin: 1rem 0 0; padding: 0; display: grid; gap: .5rem; }
.summary li { padding: .6rem .9rem; background: var(--card); border-radius: .4rem; }
.summary li { border-inline-start: .3rem solid var(--m0); }
.summary .better { border-color: var(--better); }
.summary .worse { border-color: var(--worse); }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin: 0 0 .8rem; }
.legend { font-size: .875rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem; }
.legend i { margin-inline-end: .4rem; vertical-align: -.08rem; }
.bars { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .7rem 1rem; }
.bars h3 { font-weight: 500; align-self: center; text-align: end; max-width: 9rem; }
svg { display: block; width: 100%; overflow: visible; }
svg text { font-size: .8rem; fill: currentColor; font-variant-numeric: tabular-nums; }
rect.m0 { fill: var(--m0); } i.m0 { background: var(--m0); }
rect.m1 { fill: var(--m1); } i.m1 { background: var(--m1); }
rect.m2 { fill: var(--m2); } i.m2 { background: var(--m2); }
rect.m3 { fill: var(--m3); } i.m3 { background: var(--m3); }
rect.m4 { fill: var(--m4); } i.m4 { background: var(--m4); }
rect.m5 { fill: var(--m5); } i.m5 { background: var(--m5); }
.grid { stroke: var(--line); stroke-width: 1; }
.whisker { stroke: var(--ink); stroke-width: 1.5; }
td .whisker, td circle { stroke: var(--soft); }
td circle { fill: var(--soft); }
td .whisker.better, td circle.better { stroke: var(--better); }
td .whisker.worse, td circle.worse { stroke: var(--worse); }
td circle.better { fill: var(--better); }
td circle.worse { fill: var(--worse); }
td.better { color: var(--better); font-weight: 600; }
td.worse { color: var(--worse); font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; }
table { font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: end; border-bottom: 1px solid var(--line); }
thead th { font-weight: 500; color: var(--soft); vertical-align: bottom; }
tbody th { font-weight: 500; }
th:first-child { text-align: start; padding-inline-start: 0; }
td { white-space: nowrap; }
.plot { width: 24%; min-width: 7rem; text-align: center; padding-inline-end: 0; }
.mean th, .mean td { border-top: 2px solid var(--line); font-weight: 600; }
small { color: var(--soft); font-size: .85em; }
td small { display: block; }
details { border-bottom: 1px solid var(--line); }
summary { cursor: pointer; padding: .45rem 0; }
.cards { display: grid; gap: 1rem; margin-top: .7rem; }
.cards { grid-template-columns: repeat(auto-fill, minmax(min(100%, 29rem), 1fr)); }
article { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
article { padding: .9rem 1rem 1rem; min-width: 0; }
article h3 { font-size: 1.05rem; line-height: 1.35; overflow-wrap: anywhere; }
article .soft { margin: .1rem 0 .6rem; font-size: .8rem; overflow-wrap: anywhere; }
.hits { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 3fr); gap: .8rem; }
h4 { font-size: .8rem; font-weight: 500; color: var(--soft); overflow-wrap: anywhere; }
h4 b { color: var(--ink); }
ol { list-style: none; margin: .25rem 0 .6rem; padding: 0; display: grid; gap: .4rem; }
.hits > div:last-child ol { grid-template-columns: repeat(3, minmax(0, 1fr)); }
.hits > div:last-child ol:last-child { margin-bottom: 0; }
img { display: block; width: 100%; aspect-ratio: 1; object-fit: cover; border-radius: .35rem; }
li { position: relative; }
.hits .right img { outline: 3px solid var(--better); outline-offset: -1px; }
.hits .right::after { content: "✓"; position: absolute; inset: auto .25rem .25rem auto; }
.hits .right::after { background: var(--better); color: var(--paper); border-radius: 50%; }
.hits .right::after { width: 1.15rem; height: 1.15rem; line-height: 1.15rem; }
.hits .right::after { text-align: center; font-size: .75rem; font-weight: bold; }
footer { margin: 2.5rem 0 1rem; font-size: .8rem; line-height: 1.6; color: var(--soft); }
footer { overflow-wrap: anywhere; }
@media (max-width: 36rem) {
  .bars { grid-template-columns: minmax(0, 1fr); gap: .2rem; }
  .bars h3 { text-align: start; max-width: none; margin-top: .5rem; }
  .plot, .own { display: none; }
  th, td { padding: .35rem .3rem; font-size: .8rem; }
}
@media print { article, svg { break-inside: avoid; } }
"""
