package headers

import (
	"regexp"
	"slices"
	"strings"
)

// Open finds a header that is included: by quotes beside the file that says so, or as <name> where headers lie.
type Open func(from, name string, quoted bool) (path, text string, ok bool)

// Files has the headers that a script includes, and those that they include, as far as they are found. Their conditions are not
// followed, so a name that they define in two ways is not defined.
type Files struct {
	open  Open
	read  []string
	texts []string
}

// most limits the headers that are read: a system's own include a hundred others.
const most = 300

var (
	including = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)`)
	comments  = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
)

// NewFiles returns Files without headers; with a nil Open no header is found.
func NewFiles(open Open) *Files { return &Files{open: open} }

// Include reads a header, and those that it includes; false where it is not found.
func (f *Files) Include(from, name string, quoted bool) bool {
	if f.open == nil || len(f.read) >= most {
		return true
	}
	path, text, ok := f.open(from, name, quoted)
	if !ok || slices.Contains(f.read, path) {
		return ok
	}
	f.read = append(f.read, path)
	text = comments.ReplaceAllString(strings.ReplaceAll(text, "\\\n", " "), " ")
	f.texts = append(f.texts, text)
	for _, m := range including.FindAllStringSubmatch(text, -1) {
		f.Include(path, m[1]+m[2], m[1] != "")
	}
	return true
}

// Define returns the text that #define gives a name.
func (f *Files) Define(name string) (text string, ok bool) {
	return f.only(`(?m)^[ \t]*#[ \t]*define[ \t]+` + regexp.QuoteMeta(name) + `[ \t]+(\S.*?)[ \t\r]*$`)
}

// Enum returns the enumeration that has a name among its constants.
func (f *Files) Enum(name string) (text string, ok bool) {
	text, ok = f.only(`(?s)\b(enum\s*\w*\s*\{[^{}]*\b` + regexp.QuoteMeta(name) + `\b[^{}]*\})`)
	return text + ";", ok
}

// only returns the text that a pattern finds; false where it finds none, or two that differ.
func (f *Files) only(pattern string) (found string, ok bool) {
	if len(f.texts) == 0 {
		return "", false
	}
	re := regexp.MustCompile(pattern)
	for _, text := range f.texts {
		for _, m := range re.FindAllStringSubmatch(text, -1) {
			if ok && m[1] != found {
				return "", false
			}
			found, ok = m[1], true
		}
	}
	return found, ok
}
