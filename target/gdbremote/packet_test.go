package gdbremote

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestPackets(t *testing.T) {
	for _, tt := range []struct {
		line string
		want string // kind and data of each token
	}{
		{"+$OK#9a", "ack packet:OK"},
		{"$#00", "packet:"},
		{"-+noise$OK#9a", "nak ack packet:OK"},
		{"$OK#9b$OK#9a", "broken packet:OK"},
		{"$OK#zz", "broken"},
		{"$cut off$OK#9a", "packet:OK"},
		{"$0* #7a", "packet:0000"},           // the manual's example
		{"$0*~#d8", "packet:" + zeros(1+97)}, // the longest run
		{"$}\x03}]#" + sum("}\x03}]"), "packet:#}"},
		{"$x}#" + sum("x}"), "broken"},
		{"$*!#" + sum("*!"), "broken"}, // a run of nothing
		{"$0*\x1f#" + sum("0*\x1f"), "broken"},
		{"$T05thread:p01.01;#" + sum("T05thread:p01.01;"), "packet:T05thread:p01.01;"},
	} {
		r := bufio.NewReader(strings.NewReader(tt.line))
		var got []string
		for {
			kind, data, err := next(r)
			if err != nil {
				break
			}
			got = append(got, map[token]string{tokenAck: "ack", tokenNak: "nak", tokenBroken: "broken", tokenPacket: "packet:" + data}[kind])
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%q: %q, want %q", tt.line, s, tt.want)
		}
	}
}

func zeros(n int) string { return strings.Repeat("0", n) }

func sum(s string) string {
	var n byte
	for i := range len(s) {
		n += s[i]
	}
	return fmt.Sprintf("%02x", n)
}

// A stub that never ends its packet, or blows one up by runs, is given up.
func TestPacketsAreBounded(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("$"), neverEnding('a'))
	if _, _, err := next(bufio.NewReader(endless)); !errors.Is(err, errTooLong) {
		t.Errorf("a packet without end: %v", err)
	}
	bomb := "0" + strings.Repeat("*~", maxPacket/97+2)
	if _, _, err := next(bufio.NewReader(strings.NewReader("$" + bomb + "#" + sum(bomb)))); !errors.Is(err, errTooLong) {
		t.Errorf("a packet of too many runs: %v", err)
	}
}

type neverEnding byte

func (b neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

// A framed text comes out again, and no input does harm.
func FuzzPacket(f *testing.F) {
	for _, s := range []string{"", "OK", "$#}*", "0* ", "T05thread:p01.01;", "}\x03", "*", "0*\x1f", "m0,\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) < maxPacket/2 {
			r := bufio.NewReader(bytes.NewReader(frame(nil, s)))
			kind, got, err := next(r)
			if err != nil || kind != tokenPacket || got != s {
				t.Errorf("%q came back as %v %q, %v", s, kind, got, err)
			}
		}
		r := bufio.NewReader(strings.NewReader(s))
		for range len(s) + 1 {
			if _, data, err := next(r); err != nil || len(data) > maxPacket {
				break
			}
		}
	})
}
