package syntax

import "strings"

// SplitPoint cuts an attach point at colons that are not within quotes. Within them a backslash keeps what follows.
func SplitPoint(text string) (parts []string) {
	var part strings.Builder
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == ':' && !quoted:
			parts = append(parts, part.String())
			part.Reset()
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted && i+1 < len(text):
			i++
			part.WriteByte(text[i])
		default:
			part.WriteByte(c)
		}
	}
	return append(parts, part.String())
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
