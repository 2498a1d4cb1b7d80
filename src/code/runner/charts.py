# SPDX-License-Identifier: Apache-2.0
"""What a matplotlib figure shows, as data: {"type": line | scatter | bar | pie | box_and_whisker | superchart | unknown, "title",
"elements"}, and for two axes labels, ticks and scales. Read from the artists, since nothing else knows what was drawn."""
import datetime
import math
import sys

MAX_POINTS = 50_000
SCALES = {"linear", "log", "symlog", "logit", "function", "functionlog", "asinh"}


def describe(figure):
    charts = [describe_axes(axes) for axes in figure.axes if axes.get_visible()]
    charts = [chart for chart in charts if chart is not None]
    title = figure.get_suptitle() or None
    if len(charts) == 1:
        if not charts[0]["title"]:
            charts[0]["title"] = title
        return charts[0]
    if not charts:
        return {"type": "unknown", "title": title, "elements": []}
    return {"type": "superchart", "title": title, "elements": charts}


def describe_axes(axes):
    if axes.get_label() == "<colorbar>":
        return None
    for read in (read_pie, read_boxes, read_bars, read_scatter, read_lines):
        elements = read(axes)
        if elements:
            kind = read.__name__.removeprefix("read_")
            return {"type": {"boxes": "box_and_whisker", "bars": "bar", "lines": "line"}.get(kind, kind), "title": axes.get_title() or None,
                    **({} if kind == "pie" else planar(axes, has_ticks=kind in ("lines", "scatter"))), "elements": elements}
    return {"type": "unknown", "title": axes.get_title() or None, "elements": []}


# ---- Axes ----

def planar(axes, has_ticks):
    out = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        label, unit = label_and_unit(axis.get_label_text())
        out[name + "_label"], out[name + "_unit"] = label, unit
        if has_ticks:
            low, high = sorted(axis.get_view_interval())
            ticks = [(place, text.get_text()) for place, text in zip(axis.get_ticklocs(), axis.get_ticklabels()) if low <= place <= high]
            out[name + "_ticks"] = [on_axis(axis, place) for place, _ in ticks]
            out[name + "_tick_labels"] = [text for _, text in ticks]
            out[name + "_scale"] = scale_of(axis)
    return out


def label_and_unit(text):
    """"Speed (km/h)" is the label Speed in km/h."""
    if text.endswith(")") and "(" in text:
        label, unit = text[:-1].rsplit("(", 1)
        if label.strip() and unit.strip():
            return text, unit.strip()
    return text or None, None


def is_date(axis):
    return type(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter).__module__ == "matplotlib.dates" or (
        type(axis.get_major_formatter()).__module__ == "matplotlib.dates" and type(axis.get_major_formatter()).__name__ != "NullFormatter")


def categories(axis):
    units = axis.get_units() if hasattr(axis, "get_units") else None
    mapping = getattr(units, "_mapping", None)
    return {position: name for name, position in mapping.items()} if mapping else None


def scale_of(axis):
    if categories(axis):
        return "categorical"
    if is_date(axis):
        return "datetime"
    scale = axis.get_scale()
    return scale if scale in SCALES else "linear"


def on_axis(axis, value):
    names = categories(axis)
    if names is not None and value in names:
        return str(names[value])
    value = number(value)
    if value is not None and is_date(axis):
        return sys.modules["matplotlib.dates"].num2date(value).isoformat()
    return value


def number(value):
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (int, str)) else str(value)


def points_of(axes, pairs):
    pairs = list(pairs)[:MAX_POINTS]
    return [[on_axis(axes.xaxis, convert(axes.xaxis, x)), on_axis(axes.yaxis, convert(axes.yaxis, y))] for x, y in pairs]


def convert(axis, value):
    """Artists keep what they were given: dates and names become places on the axis, as for drawing."""
    try:
        return axis.convert_units(value)
    except Exception:
        return value


def own_label(artist):
    label = artist.get_label()
    return None if not label or str(label).startswith("_") else str(label)


# ---- Kinds ----

def read_lines(axes):
    lines = [line for line in axes.get_lines() if len(line.get_xdata(orig=False)) > 0]
    return [{"label": own_label(line) or f"Line {number}", "points": points_of(axes, zip(line.get_xdata(), line.get_ydata()))}
            for number, line in enumerate(lines)]


def read_scatter(axes):
    found = [artist for artist in axes.collections if type(artist).__name__ == "PathCollection"]
    return [{"label": own_label(artist) or f"Scatter {number}", "points": points_of(axes, artist.get_offsets().tolist())}
            for number, artist in enumerate(found)]


def containers(axes, name):
    return [container for container in axes.containers if type(container).__name__ == name]


def read_bars(axes):
    elements = []
    for group, container in enumerate(containers(axes, "BarContainer")):
        is_upright = container.orientation != "horizontal"
        axis = axes.xaxis if is_upright else axes.yaxis
        texts = dict(zip(map(float, axis.get_ticklocs()), (text.get_text() for text in axis.get_ticklabels())))
        for bar in list(container)[:MAX_POINTS]:
            place = bar.get_x() + bar.get_width() / 2 if is_upright else bar.get_y() + bar.get_height() / 2
            value = bar.get_height() if is_upright else bar.get_width()
            named = next((text for at, text in texts.items() if text and math.isclose(at, place, abs_tol=1e-6)), None)
            label = named if named is not None else on_axis(axis, place)
            elements.append({"label": str(label), "group": own_label(container) or f"Group {group}", "value": number(value)})
    return elements


def read_pie(axes):
    wedges = [patch for patch in axes.patches if type(patch).__name__ == "Wedge"]
    return [{"label": own_label(wedge) or "", "angle": number(abs(wedge.theta2 - wedge.theta1)), "radius": number(wedge.r)} for wedge in wedges]


def read_boxes(axes):
    """A box plot is lines (or patches) in a fixed arrangement: the box, two whiskers, two caps, the median, the outliers."""
    boxes = find_boxes(axes)
    if not boxes:
        return []
    names = [text.get_text() for text in (axes.get_xticklabels() if boxes[0]["upright"] else axes.get_yticklabels())]
    out = []
    for index, box in enumerate(boxes):
        label = names[index] if index < len(names) and names[index] else str(index + 1)
        low, high = box["quartiles"]
        ends = box["whiskers"]
        out.append({"label": label, "min": number(min(ends, default=low)), "first_quartile": number(low), "median": number(box["median"]),
                    "third_quartile": number(high), "max": number(max(ends, default=high)),
                    "outliers": [number(value) for value in box["outliers"]]})
    return out


def find_boxes(axes):
    lines = [(list(map(float, line.get_xdata(orig=False))), list(map(float, line.get_ydata(orig=False))), line) for line in axes.get_lines()
             if own_label(line) is None]
    shapes = [(xs, ys) for xs, ys, _ in lines if len(xs) == 5 and xs[0] == xs[-1] and ys[0] == ys[-1]]
    for patch in axes.patches:
        if type(patch).__name__ == "PathPatch":
            vertices = patch.get_path().vertices.tolist()
            if len(vertices) in (5, 6):
                shapes.append(([x for x, _ in vertices[:5]], [y for _, y in vertices[:5]]))
    return [box for box in (read_box(xs, ys, lines) for xs, ys in shapes) if box is not None]


def read_box(xs, ys, lines):
    """The median crosses the box; that tells a box from any other rectangle, and how it stands."""
    for is_upright in (True, False):
        (across, along) = (xs, ys) if is_upright else (ys, xs)
        left, right, low, high = min(across), max(across), min(along), max(along)
        middle = (left + right) / 2
        median, whiskers, outliers = None, [], []
        for line_xs, line_ys, line in lines:
            line_across, line_along = (line_xs, line_ys) if is_upright else (line_ys, line_xs)
            if len(line_across) == 2 and line_along[0] == line_along[1] and low <= line_along[0] <= high and math.isclose(
                    min(line_across), left) and math.isclose(max(line_across), right):
                median = line_along[0]
            elif len(line_across) == 2 and all(math.isclose(value, middle) for value in line_across):
                whiskers += line_along
            elif line_across and line.get_linestyle() in ("None", "none", "", " ") and all(math.isclose(value, middle) for value in line_across):
                outliers += line_along
        if median is not None:
            return {"upright": is_upright, "quartiles": (low, high), "median": median, "whiskers": whiskers, "outliers": outliers}
    return None
