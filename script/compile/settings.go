package compile

import (
	"strconv"
	"strings"

	"kprobe/script/syntax"
)

// Settings are what a config block, or the environment, sets.
type Settings struct {
	MaxStrlen       int
	MaxMapKeys      int
	PrintMapsOnExit bool
	TruncTrailer    string
	MissingProbes   string // "error", "warn", "ignore"
	StackMode       string
}

// numbers that settings may have; those that mean nothing here are read and let be.
var idle = map[string]bool{
	"cache_user_symbols": true, "cpp_demangle": true, "lazy_symbolication": true, "log_size": true, "max_bpf_progs": true,
	"max_cat_bytes": true, "max_probes": true, "max_type_res_iterations": true, "on_stack_limit": true, "perf_rb_pages": true,
	"unstable_import": true, "unstable_macro": true, "unstable_map_decl": true, "unstable_tseries": true, "unstable_import_statement": true,
	"use_blazesym": true, "show_debug_info": true, "license": true, "symbol_source": true, "max_ast_nodes": true, "btf": true,
}

// settings reads those of the options, then the script's own.
func (c *checker) settings(f *syntax.File) Settings {
	s := Settings{MaxStrlen: 1024, MaxMapKeys: 4096, PrintMapsOnExit: true, TruncTrailer: "..", MissingProbes: "error", StackMode: "bpftrace"}
	for name, value := range c.opts.Settings {
		s.set(name, value)
	}
	for _, cfg := range f.Config {
		name := strings.TrimPrefix(strings.ToLower(cfg.Name), "bpftrace_")
		if what := s.set(name, cfg.Value); what != "" {
			c.errorf(cfg, "%s", strings.ReplaceAll(what, "%", cfg.Name))
		}
	}
	return s
}

// set changes a setting, or says what is wrong.
func (s *Settings) set(name, value string) (wrong string) {
	number := func(to *int, least, most int) string {
		n, err := strconv.ParseInt(strings.ReplaceAll(value, "_", ""), 0, 32)
		if err != nil || int(n) < least || int(n) > most {
			return "Invalid value for %: it must be a number from " + strconv.Itoa(least) + " to " + strconv.Itoa(most)
		}
		*to = int(n)
		return ""
	}
	switch name {
	case "max_strlen", "strlen":
		return number(&s.MaxStrlen, 1, 16<<10)
	case "max_map_keys", "map_keys_max":
		return number(&s.MaxMapKeys, 1, 1<<24)
	case "print_maps_on_exit":
		switch value {
		case "1", "true":
			s.PrintMapsOnExit = true
		case "0", "false":
			s.PrintMapsOnExit = false
		default:
			return "Invalid value for %: it must be true or false"
		}
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
		if !idle[name] {
			return "Unrecognized config variable: %"
		}
	}
	return ""
}
