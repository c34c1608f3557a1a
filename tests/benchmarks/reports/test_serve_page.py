"""The page on the server: how another address fared, and who took the cores."""

from __future__ import annotations

from typing import Any

from benchmarks.reports import serve_page


def phase(p95: int, server: float) -> tuple[dict[str, Any], dict[str, Any]]:
    busy = {"server": server, "decoders": 0.25, "load generator": 0.09, "other address": 0.01}
    costs = {"seconds": 60.0, "busy_cores": busy, "generator_late_p95_ms": 6.4}
    return {"statuses": {"200": 100}, "p50_ms": p95 // 2, "p95_ms": p95}, costs


def results() -> dict[str, Any]:
    phases = {
        "quiet": phase(20, 0.3), "idle": phase(22, 0.35),
        "clients": phase(30, 1.2), "clients and idle": phase(35, 1.3),
    }  # fmt: skip
    kinds = {"search": 4200, "thumbnail": 30, "invalid": 4, "upload": 900, "hostile upload": 90}
    by_request = {
        kind: {"statuses": {"503": 3 * ("upload" in kind)}, "p50_ms": p50, "p95_ms": 2 * p50}
        for kind, p50 in kinds.items()
    }
    return {
        "hardware": "2 cores", "seconds": 300.0, "clients": 200, "idle_connections": 1000,
        "load_average_before": 0.1, "requests": 9000, "undocumented": [],
        "statuses": {"200": 8000, "404": 300, "415": 200, "422": 488, "503": 12},
        "by_request": by_request, "by_request_with_idle": by_request,
        "other_address": {name: fared for name, (fared, _) in phases.items()},
        "costs": {name: costs for name, (_, costs) in phases.items()},
        "memory_mb": {"before": 240, "peak": 370, "after": 360, "decoders_peak": 60},
    }  # fmt: skip


def test_the_section_compares_each_phase_with_the_quiet_one() -> None:
    text = serve_page.section(results())
    assert "| nobody else | 10 ms | 20 ms | 1.00 | 0.30 | 0.25 | 0.10 |" in text
    assert "| both | 17 ms | 35 ms | 1.75 | 1.30 | 0.25 | 0.10 |" in text
    assert "8,000 succeeded, among them 400 searches of the other address; 988 invalid" in text
    assert "12 got 503, 12 of them uploads" in text
    assert "30 ms for a thumbnail, 4 ms for a refusal and 4.2 s for a search" in text
    assert "no other responses" in text


def test_unexpected_responses_are_named() -> None:
    text = serve_page.responses({**results(), "undocumented": ["500"]})
    assert "Unexpected: 500." in text
    assert "no other responses" not in text


def test_other_programs_on_the_machine_are_named() -> None:
    assert "other programs" not in serve_page.costs(results())
    assert "other programs ran too" in serve_page.costs({**results(), "load_average_before": 5.3})
