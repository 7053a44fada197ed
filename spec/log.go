package spec

import "strings"

// Log renders the error as an entry of tracefs' error_log, without its time:
//
//	trace_kprobe: error: Invalid register name
//	  Command: p:bad8 vfs_read %zz
//	                           ^
//
// prefix is the text before ": error: ": trace_kprobe or trace_uprobe, after
// "[    2.425057] " where the time is wanted. Codes for which the kernel keeps
// no entry give "".
func (e *SyntaxError) Log(prefix string) string {
	switch e.Code {
	case BadCommand, NoPlace, NoEvent:
		return ""
	}
	const command = "  Command: "
	return prefix + ": error: " + e.Code.Message() + "\n" +
		command + e.Line + "\n" +
		strings.Repeat(" ", len(command)+e.Offset) + "^\n"
}
