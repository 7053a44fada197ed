package trace

import (
	"testing"

	"kprobe"
	"kprobe/spec"
	"kprobe/symbol"
)

// A place is looked up once: the probe has what the definition found. An address that was given stays one.
func TestProbeHasWhatWasFound(t *testing.T) {
	loc := symbol.Loc{Addr: 0x1234, Module: new(symbol.Module)}
	tests := []struct {
		at   located
		kind spec.Kind
		want *kprobe.Kprobe
	}{
		{located{loc: loc, name: "f", off: 4}, spec.Probe, &kprobe.Kprobe{SymbolName: "f", Offset: 4, Loc: loc}},
		{located{loc: loc}, spec.Probe, &kprobe.Kprobe{Loc: loc}},
		{located{loc: loc}, spec.Return, &kprobe.Kprobe{Loc: loc}},
		{located{loc: loc, raw: true}, spec.Probe, &kprobe.Kprobe{Addr: 0x1234}},
		{located{loc: symbol.Loc{Addr: 0x1234}}, spec.Probe, &kprobe.Kprobe{Addr: 0x1234}},
		{located{name: "f"}, spec.Return, &kprobe.Kprobe{SymbolName: "f"}},
		{located{name: "v", off: 8}, spec.Watch, &kprobe.Kprobe{SymbolName: "v", Offset: 8}},
	}
	for _, tt := range tests {
		var got *kprobe.Kprobe
		switch p := tt.at.probe(&spec.Spec{Kind: tt.kind}, 0).(type) {
		case *kprobe.Kprobe:
			got = p
		case *kprobe.Kretprobe:
			got = &p.Kp
		case *kprobe.Watchpoint:
			got = &p.Kp
		}
		if got.SymbolName != tt.want.SymbolName || got.Offset != tt.want.Offset || got.Addr != tt.want.Addr || got.Loc != tt.want.Loc {
			t.Errorf("%+v: name %q+%d, address %v, place %+v", tt.at, got.SymbolName, got.Offset, got.Addr, got.Loc)
		}
	}
}
