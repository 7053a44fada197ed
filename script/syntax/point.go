package syntax

import "strings"

// Part is a piece of an attach point.
type Part struct {
	Text    string
	Pattern string // the same with a backslash before what is no wildcard and no offset: a quoted name has brackets and plus signs of its own
}

// SplitPoint cuts an attach point at colons that are not within quotes. Within them a backslash keeps what follows.
func SplitPoint(text string) (texts []string) {
	for _, p := range SplitParts(text) {
		texts = append(texts, p.Text)
	}
	return texts
}

// SplitParts is SplitPoint with what of the parts may be a pattern.
func SplitParts(text string) (parts []Part) {
	var part, pattern strings.Builder
	quoted := false
	end := func() {
		parts = append(parts, Part{part.String(), pattern.String()})
		part.Reset()
		pattern.Reset()
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == ':' && !quoted:
			end()
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted && i+1 < len(text):
			i++
			part.WriteByte(text[i])
			pattern.WriteString(text[i-1 : i+1])
		case quoted && (c == '[' || c == '+'):
			part.WriteByte(c)
			pattern.WriteString(`\` + string(c))
		default:
			part.WriteByte(c)
			pattern.WriteByte(c)
		}
	}
	end()
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
