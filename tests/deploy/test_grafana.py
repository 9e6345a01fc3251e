"""The dashboard has the types that Grafana publishes for dashboards and for each kind of panel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.test_package import check_types

TYPES = "@grafana/schema/dist/esm/raw/composable"
BEGINNING = f"""
import type {{ Dashboard, Panel, RowPanel }} from "@grafana/schema";
import type * as series from "{TYPES}/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";
import type * as stat from "{TYPES}/stat/panelcfg/x/StatPanelCfg_types.gen";
import type * as table from "{TYPES}/table/panelcfg/x/TablePanelCfg_types.gen";
// As JSON has them: a member of an enum of texts is its text.
type Written<T> = T extends string ? `${{T}}` : T extends object ? {{ [K in keyof T]: Written<T[K]> }} : T;
type Of<Kind, Options, Field> =
  Omit<Written<Panel<Partial<Options>, Partial<Field>>>, "type"> & {{ type: Kind }};
type AnyPanel =
  | Of<"timeseries", series.Options, series.FieldConfig>
  | Of<"stat", stat.Options, Record<string, never>>
  | Of<"table", table.Options, table.FieldConfig>
  | Written<RowPanel>;
export const dashboard: Omit<Written<Dashboard>, "panels"> & {{ panels: AnyPanel[] }} = """


async def check(dashboard: str, folder: Path, node_packages: Path) -> None:
    """Let the compiler compare a dashboard, written as JSON, with the types."""
    (folder / "node_modules").symlink_to(node_packages)
    (folder / "dashboard.ts").write_text(f"{BEGINNING}{dashboard};\n")
    await check_types(folder, node_packages, "dashboard.ts", skipLibCheck=True)


@pytest.fixture
def dashboard(root: Path) -> str:
    return (root / "deploy" / "grafana" / "voicepipe.json").read_text()


@pytest.mark.slow
async def test_the_dashboard_has_the_published_types(dashboard: str, tmp_path: Path, node_packages: Path) -> None:
    await check(dashboard, tmp_path, node_packages)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ('"drawStyle": "line"', '"drawStyle": "lines"', '"lines"'),
        ('"gridPos"', '"gridPosition"', "gridPosition"),
    ],
)
async def test_a_wrong_dashboard_is_found(
    dashboard: str, tmp_path: Path, node_packages: Path, right: str, wrong: str, fault: str
) -> None:
    """A value that there is not, and a field of a panel."""
    assert right in dashboard
    with pytest.raises(AssertionError, match=fault):
        await check(dashboard.replace(right, wrong, 1), tmp_path, node_packages)
