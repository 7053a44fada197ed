package event

import (
	"unicode"
	"unicode/utf8"
)

// A target's strings end on a terminal. So bytes that are not UTF-8, and characters that do not
// print (controls, escape sequences, direction marks), are written as \xNN, a byte each. A
// backslash stands for itself, as in the kernel's lines, except one that would read as such an
// escape: it becomes \x5c. Nothing is lost: taking every \xNN back gives the original bytes.

const hexDigits = "0123456789abcdef"

// appendText appends s for people: every character that does not print is
// escaped, byte by byte.
func appendText(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f || c == '\\' && looksEscaped(s[i:]) {
				dst = appendByte(dst, c)
			} else {
				dst = append(dst, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if n > 1 && unicode.IsPrint(r) {
			dst = append(dst, s[i:i+n]...)
		} else {
			for _, b := range []byte(s[i : i+n]) {
				dst = appendByte(dst, b)
			}
		}
		i += n
	}
	return dst
}

// appendJSONText appends s as a JSON string. UTF-8 comes back exactly from any JSON reader; other
// bytes are \xNN in the text that it gives.
func appendJSONText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		if c := s[i]; ' ' <= c && c < 0x7f && c != '"' && c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1, r == '\\' && looksEscaped(s[i:]):
			dst = appendByte(append(dst, '\\'), s[i])
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case unicode.IsPrint(r):
			dst = append(dst, s[i:i+n]...)
		case r > 0xffff: // two UTF-16 halves
			r -= 0x10000
			dst = appendUnit(dst, 0xd800|r>>10)
			dst = appendUnit(dst, 0xdc00|r&0x3ff)
		default:
			dst = appendUnit(dst, r)
		}
		i += n
	}
	return append(dst, '"')
}

func appendByte(dst []byte, b byte) []byte {
	return append(dst, '\\', 'x', hexDigits[b>>4], hexDigits[b&15])
}

func appendUnit(dst []byte, u rune) []byte {
	return append(dst, '\\', 'u', hexDigits[u>>12&15], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
}

// looksEscaped tells whether s starts with \xNN.
func looksEscaped(s string) bool {
	return len(s) >= 4 && s[1] == 'x' && isHex(s[2]) && isHex(s[3])
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
