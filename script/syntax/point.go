package syntax

import "strings"

// SplitPoint cuts an attach point at colons that are not within quotes.
func SplitPoint(text string) (parts []string) {
	from, quoted := 0, false
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text) || text[i] == ':' && !quoted:
			parts = append(parts, strings.ReplaceAll(text[from:i], `"`, ""))
			from = i + 1
		case text[i] == '"':
			quoted = !quoted
		}
	}
	return parts
}

// Providers are those of attach points, by all their names.
var Providers = map[string]string{
	"begin": "begin", "BEGIN": "begin", "end": "end", "END": "end", "self": "self", "test": "test", "bench": "bench",
	"uprobe": "uprobe", "u": "uprobe", "uretprobe": "uretprobe", "ur": "uretprobe", "usdt": "usdt", "U": "usdt",
	"kprobe": "kprobe", "k": "kprobe", "kretprobe": "kretprobe", "kr": "kretprobe",
	"fentry": "fentry", "f": "fentry", "kfunc": "fentry", "fexit": "fexit", "fr": "fexit", "kretfunc": "fexit",
	"tracepoint": "tracepoint", "t": "tracepoint", "rawtracepoint": "rawtracepoint", "rt": "rawtracepoint",
	"interval": "interval", "i": "interval", "profile": "profile", "p": "profile",
	"software": "software", "s": "software", "hardware": "hardware", "h": "hardware",
	"watchpoint": "watchpoint", "w": "watchpoint", "asyncwatchpoint": "asyncwatchpoint", "aw": "asyncwatchpoint",
	"iter": "iter", "it": "iter",
}
