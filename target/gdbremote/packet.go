package gdbremote

import (
	"bufio"
	"errors"
	"fmt"
)

// A packet is $DATA#CC, where CC is the sum of DATA's bytes modulo 256 in
// hexadecimal. In DATA a } is followed by a byte with bit 5 flipped, and X*N
// stands for N-28 times X (GDB manual, "Overview" of the remote protocol).

// maxPacket bounds the bytes of a stub that are kept. Real ones announce 4 to 128 KiB.
const maxPacket = 1 << 20

// frame appends a packet that holds data.
func frame(dst []byte, data string) []byte {
	dst = append(dst, '$')
	var sum byte
	for i := range len(data) {
		c := data[i]
		switch c {
		case '$', '#', '}', '*':
			dst = append(dst, '}', c^0x20)
			sum += '}' + c ^ 0x20
		default:
			dst = append(dst, c)
			sum += c
		}
	}
	return fmt.Appendf(dst, "#%02x", sum)
}

// token is one thing that came over the line.
type token int

const (
	tokenPacket token = iota
	tokenAck          // +
	tokenNak          // -: the peer wants the last packet again
	tokenBroken       // a packet whose checksum is wrong
)

var errTooLong = errors.New("a packet without end")

// next reads as far as the next token. Bytes between packets are noise and are passed over.
func next(r *bufio.Reader) (token, string, error) {
	for {
		c, err := r.ReadByte()
		if err != nil {
			return 0, "", err
		}
		switch c {
		case '+':
			return tokenAck, "", nil
		case '-':
			return tokenNak, "", nil
		case '$':
			return readPacket(r)
		}
	}
}

// readPacket reads the packet behind a $.
func readPacket(r *bufio.Reader) (token, string, error) {
	var raw []byte
	var sum byte
	for {
		c, err := r.ReadByte()
		switch {
		case err != nil:
			return 0, "", err
		case c == '$': // the packet before was cut off
			raw, sum = raw[:0], 0
			continue
		case c == '#':
			var cc [2]byte
			for i := range cc {
				if cc[i], err = r.ReadByte(); err != nil {
					return 0, "", err
				}
			}
			hi, ok1 := hexDigit(cc[0])
			lo, ok2 := hexDigit(cc[1])
			data, err := expand(raw)
			if !ok1 || !ok2 || hi<<4|lo != sum || errors.Is(err, errFormat) {
				return tokenBroken, "", nil
			}
			return tokenPacket, data, err
		case len(raw) == maxPacket:
			return 0, "", errTooLong
		}
		raw = append(raw, c)
		sum += c
	}
}

var errFormat = errors.New("a packet with a broken escape")

// expand undoes escapes and run lengths.
func expand(raw []byte) (string, error) {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c != '}' && c != '*':
			out = append(out, c)
			continue
		case i+1 == len(raw) || c == '*' && (len(out) == 0 || raw[i+1] < ' '):
			return "", errFormat
		}
		i++
		if c == '}' {
			out = append(out, raw[i]^0x20)
			continue
		}
		n := int(raw[i]) - 29
		if len(out)+n > maxPacket {
			return "", errTooLong
		}
		for range n {
			out = append(out, out[len(out)-1])
		}
	}
	return string(out), nil
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
