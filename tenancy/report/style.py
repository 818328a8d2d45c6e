"""Style of the pages, in addition to the style that all pages of the product share."""

STYLE = """
:root { --closed: #e7f3ec; --closed-ink: #2d6a45; --shared: #fdf3d6; --shared-ink: #7a5600; --given: #e3eefb;
  --given-ink: #0b4f8a; --open: #fde3e0; --open-ink: #a3160a; --kept: #0072B2; --lent: #56B4E9; --free: #b8c0c8; }
@media (prefers-color-scheme: dark) { :root { --closed: #14261b; --closed-ink: #7fc99b; --shared: #2e2510;
  --shared-ink: #e5c163; --given: #10253c; --given-ink: #8cc2f7; --open: #3d1512; --open-ink: #ff9d92;
  --kept: #2f8fd0; --lent: #8fd0f5; --free: #4a535d; } }
body { max-width: 1240px; }
header { display: flex; flex-wrap: wrap; gap: .2rem 1.5rem; align-items: baseline; justify-content: space-between; }
header p { margin: 0; } h2 { border-top: 1px solid var(--line); padding-top: 1.4rem; }
nav { margin: .8rem 0 0; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .88rem; }
nav a { color: var(--accent); text-decoration: none; } nav a:hover { text-decoration: underline; }
h3 { margin-top: 1.3rem; } figure h3, .plane h3 { margin-top: 0; }
figure.one { margin-top: 1.2rem; }
.tile span { display: block; line-height: 1.3; } .tile small { color: var(--soft); }
td, th { vertical-align: middle; }
td b { font-weight: 600; } td small, .key small { color: var(--soft); font-size: .82rem; }
tfoot td { font-weight: 600; border-bottom: 0; }
.chip { display: inline-block; border: 1px solid var(--line); background: var(--card); border-radius: 5px;
  padding: 0 .4em; margin: .08rem .2rem .08rem 0; font-size: .8rem; white-space: nowrap; }
.bar { display: flex; height: 16px; background: var(--card); border-radius: 4px; overflow: hidden; min-width: 160px; }
.bar i { display: block; } .bar .kept, .legend .kept { background: var(--kept); }
.bar .lent, .legend .lent { background: repeating-linear-gradient(45deg, var(--lent) 0 5px, var(--kept) 5px 8px); }
.bar .free, .legend .free { background: var(--free); }
.bar .luck, .legend .luck { background: var(--card); box-shadow: inset 0 0 0 1px var(--line); }
.bar .thin { background: var(--accent); } .bar .over { background: var(--open-ink); }
table.wide td.grow { width: 45%; }
.tabs > input { position: absolute; opacity: 0; pointer-events: none; }
.tabs > .names { display: flex; flex-wrap: wrap; gap: .3rem; margin: .6rem 0 .9rem; }
.names label { cursor: pointer; border: 1px solid var(--line); border-radius: 6px; padding: .2rem .75rem;
  font-size: .9rem; background: var(--card); }
.plane { display: none; } .plane > h3 { font-size: 1rem; color: var(--ink); margin-top: 0; }
table.mx { width: auto; border-collapse: separate; border-spacing: 2px; font-size: .8rem; }
table.mx th, table.mx td { border: 0; padding: 0; }
table.mx thead th { height: 7.6rem; vertical-align: bottom; font-weight: 500; }
table.mx thead th span { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 7.4rem; display: block;
  overflow: hidden; margin: 0 auto; white-space: nowrap; }
table.mx tbody th { font-weight: 500; padding-right: .6rem; white-space: nowrap; text-align: right; }
table.mx td { min-width: 3.1rem; height: 1.75rem; text-align: center; border-radius: 4px; padding: 0 .3rem;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
table.mx td.self { background: none; color: var(--line); } table.mx tr:hover td { filter: brightness(.94); }
.closed { background: var(--closed); color: var(--closed-ink); } .shared { background: var(--shared);
  color: var(--shared-ink); } .given { background: var(--given); color: var(--given-ink); }
.open { background: var(--open); color: var(--open-ink); font-weight: 700; }
.legend i[class] { box-shadow: inset 0 0 0 1px currentColor; } .legend i.kept, .legend i.lent,
  .legend i.free { box-shadow: none; }
.key { list-style: none; padding: 0; margin: .9rem 0 0; display: grid; gap: .55rem; }
.key li { display: grid; grid-template-columns: 6.2rem 1fr; gap: .8rem; align-items: start; font-size: .88rem; }
.key .word { border-radius: 4px; text-align: center; padding: .08rem .3rem; }
.key p { margin: 0; } .rule { font-size: .8rem; margin-right: .25rem; white-space: nowrap; }
details > summary { cursor: pointer; color: var(--accent); font-size: .92rem; margin: .4rem 0; }
.missing { border-left: 3px solid var(--shared-ink); background: var(--shared); color: var(--shared-ink);
  padding: .35rem .8rem; border-radius: 0 6px 6px 0; font-size: .9rem; margin: .5rem 0; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .8rem; }
@media print { nav, .names { display: none !important; } .plane { display: block !important; break-inside: avoid;
  margin-bottom: 1.2rem; } .tile, .bar { break-inside: avoid; } table.mx td { min-width: 2.3rem; height: 1.3rem; }
  tfoot { display: table-row-group; }
  table.mx { font-size: .62rem; } details::details-content { content-visibility: visible; block-size: auto; }
  @page { size: A4 landscape; margin: 12mm; }
  :root { color-scheme: light; --ink: #1b1f24; --soft: #57606a; --line: #d8dee4; --paper: #ffffff; --card: #f6f8fa;
  --accent: #0072B2; --closed: #e7f3ec; --closed-ink: #2d6a45; --shared: #fdf3d6; --shared-ink: #7a5600;
  --given: #e3eefb; --given-ink: #0b4f8a; --open: #fde3e0; --open-ink: #a3160a; --kept: #0072B2; --lent: #56B4E9;
  --free: #b8c0c8; } }
"""


def tabs(count: int) -> str:
    """CSS that shows only the part whose button is pressed; in print all parts are shown."""
    shown = ", ".join(f"#plane-{n}:checked ~ #part-{n}" for n in range(count))
    pressed = ", ".join(f"#plane-{n}:checked ~ .names label[for=plane-{n}]" for n in range(count))
    focused = ", ".join(f"#plane-{n}:focus-visible ~ .names label[for=plane-{n}]" for n in range(count))
    return (
        f"{shown} {{ display: block; }}\n{pressed} {{ background: var(--accent); color: var(--paper); "
        f"border-color: var(--accent); }}\n{focused} {{ outline: 2px solid var(--ink); outline-offset: 2px; }}\n"
    )
