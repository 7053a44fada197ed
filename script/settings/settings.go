// Package settings has what a script's config block, or the environment, sets.
package settings

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Settings are what a config block, or the environment, sets.
type Settings struct {
	MaxStrlen       int
	MaxMapKeys      int
	PrintMapsOnExit bool
	TruncTrailer    string
	MissingProbes   string // "error", "warn", "ignore"
	StackMode       string
	MaxCatBytes     int
	ProbeInline     bool // uprobes on functions are at their inlined copies, too

	Refused map[string]bool // features that the script is to do without: "unstable_tseries"

	given map[string]string // those that mean nothing here, as far as they were set
}

// Value is a setting's by its name, as it is written. known is false for what is none.
func (s *Settings) Value(name string) (value string, known bool) {
	switch name {
	case "max_strlen":
		return strconv.Itoa(s.MaxStrlen), true
	case "max_map_keys":
		return strconv.Itoa(s.MaxMapKeys), true
	case "max_cat_bytes":
		return strconv.Itoa(s.MaxCatBytes), true
	case "print_maps_on_exit":
		return strconv.FormatBool(s.PrintMapsOnExit), true
	case "probe_inline":
		return strconv.FormatBool(s.ProbeInline), true
	case "str_trunc_trailer":
		return s.TruncTrailer, true
	case "missing_probes":
		return s.MissingProbes, true
	case "stack_mode":
		return s.StackMode, true
	}
	if value, known = s.given[name]; !known {
		value, known = unchanged[name]
	}
	return value, known
}

// unchanged are the values of those that mean nothing here, where nobody has set them.
var unchanged = map[string]string{
	"cache_user_symbols": "PER_PID", "cpp_demangle": "true", "lazy_symbolication": "false", "license": "GPL", "log_size": "1000000",
	"max_bpf_progs": "1024", "max_probes": "1024", "on_stack_limit": "32", "perf_rb_pages": "64", "show_debug_info": "true",
}

// note keeps what a setting that means nothing here was set to.
func (s *Settings) note(name, value string) {
	if s.given == nil {
		s.given = map[string]string{}
	}
	switch {
	case idle[name] == truths && value == "0":
		value = "false"
	case idle[name] == truths && value == "1":
		value = "true"
	}
	s.given[name] = value
}

// Default are those that nobody has changed.
func Default() Settings {
	return Settings{MaxStrlen: 1024, MaxMapKeys: 4096, PrintMapsOnExit: true, TruncTrailer: "..", MissingProbes: "error", StackMode: "bpftrace", MaxCatBytes: 10240}
}

// idle are those that mean nothing here, with what values they may have. They are read and let be.
var idle = map[string]string{
	"cache_user_symbols": "PER_PID PER_PROGRAM NONE true false 0 1", "symbol_source": "",
	"cpp_demangle": truths, "lazy_symbolication": truths, "show_debug_info": truths, "use_blazesym": truths,
	"log_size": "number", "max_bpf_progs": "number", "max_probes": "number", "max_type_res_iterations": "number", "on_stack_limit": "number",
	"perf_rb_pages": "number", "max_ast_nodes": "number",
}

// Deprecated tells of a setting that earlier releases of the language had.
func Deprecated(name string) bool {
	switch strings.TrimPrefix(strings.ToLower(name), "bpftrace_") {
	case "symbol_source", "max_type_res_iterations", "max_ast_nodes", "use_blazesym":
		return true
	}
	return false
}

const truths = "true false 0 1"

// outside are those that the environment alone sets.
var outside = []string{"btf", "color", "debug_output", "kernel_build", "kernel_source", "verify_llvm_ir", "vmlinux"}

// OfEnvironment tells of a name that no config block sets.
func OfEnvironment(name string) bool { return slices.Contains(outside, name) }

// Configure changes a setting as a config block has it, or says what is wrong, and whether that is the name itself.
func (s *Settings) Configure(name, value string) (wrong string, itsName bool) {
	bare := strings.TrimPrefix(strings.ToLower(name), "bpftrace_")
	wrong = strings.ReplaceAll(s.Set(bare, value), "%", name)
	if OfEnvironment(bare) {
		return name + " can only be set as an environment variable", true
	}
	return wrong, strings.HasPrefix(wrong, "Unrecognized")
}

// Environment changes settings as the environment has them, by their names in a config block, and says what is wrong. Others may have
// variables of such names.
func (s *Settings) Environment(given map[string]string) (wrong []string) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if what := s.Set(name, given[name]); what != "" && !strings.HasPrefix(what, "Unrecognized") {
			wrong = append(wrong, "BPFTRACE_"+strings.ToUpper(name)+": "+strings.ReplaceAll(what, "%", name))
		}
	}
	return wrong
}

// unstable are the features that a script may be kept from.
var unstable = map[string]bool{"unstable_import": true, "unstable_import_statement": true, "unstable_macro": true, "unstable_map_decl": true, "unstable_tseries": true, "unstable_addr": true, "unstable_typeinfo": true, "unstable_dw_ustack": true}

// Set changes a setting by its name, or says what is wrong: % stands for the name there.
func (s *Settings) Set(name, value string) (wrong string) {
	number := func(to *int, least, most int) string {
		n, err := strconv.ParseInt(strings.ReplaceAll(value, "_", ""), 0, 32)
		if err != nil || int(n) < least || int(n) > most {
			return "Invalid value for %: it must be a number from " + strconv.Itoa(least) + " to " + strconv.Itoa(most)
		}
		*to = int(n)
		return ""
	}
	truth := func(to *bool) string {
		if !slices.Contains(strings.Fields(truths), value) {
			return "Invalid value for %: it must be true or false"
		}
		*to = value == "1" || value == "true"
		return ""
	}
	switch name {
	case "max_strlen", "strlen":
		return number(&s.MaxStrlen, 1, 16<<10)
	case "max_map_keys", "map_keys_max":
		return number(&s.MaxMapKeys, 1, 1<<24)
	case "print_maps_on_exit":
		return truth(&s.PrintMapsOnExit)
	case "probe_inline":
		return truth(&s.ProbeInline)
	case "max_cat_bytes":
		return number(&s.MaxCatBytes, 0, 1<<30)
	case "license":
		switch value {
		case "GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL":
		default:
			return "Your bpftrace program cannot load because you are using a license that is non-GPL compatible. License: " + value
		}
		s.note(name, value)
	case "str_trunc_trailer":
		s.TruncTrailer = value
	case "missing_probes":
		if value != "error" && value != "warn" && value != "ignore" {
			return "Invalid value for missing_probes: it must be error, warn or ignore"
		}
		s.MissingProbes = value
	case "stack_mode":
		if value != "bpftrace" && value != "perf" && value != "raw" && value != "build_id" {
			return "Invalid value for stack_mode: it must be bpftrace, perf, raw or build_id"
		}
		s.StackMode = value
	default:
		values, known := idle[name]
		switch {
		case unstable[name] && value != "error" && value != "warn" && value != "enable":
			return "Invalid value for %: it must be error, warn or enable"
		case unstable[name]:
			if s.Refused == nil {
				s.Refused = map[string]bool{}
			}
			s.Refused[name] = value == "error"
		case !known:
			return "Unrecognized config variable: %"
		case values == "number":
			var n int
			wrong = number(&n, 0, math.MaxInt32)
			s.note(name, strconv.Itoa(n))
			return wrong
		case values != "" && !slices.Contains(strings.Fields(values), value):
			return "Invalid value for %: it must be one of " + values
		}
		s.note(name, value)
	}
	return ""
}
