package tokenize

import "unicode/utf8"

// A byte-level vocabulary is written with 256 printable characters, one for each byte: the printable bytes of Latin-1
// stand for themselves, the other 68 are U+0100 upwards in byte order. So a space is "Ġ" and a newline is "Ċ".
var (
	byteToRune [256]rune
	runeToByte [256 + 68]int16 // -1 if the rune stands for no byte
)

// The 188 printable characters of Latin-1 stand for their own bytes, and the runes from 256 on for the other bytes.
func init() {
	for i := range runeToByte {
		runeToByte[i] = -1
	}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		printable := '!' <= r && r <= '~' || '¡' <= r && r <= '¬' || '®' <= r && r <= 'ÿ'
		if !printable {
			r, next = next, next+1
		}
		byteToRune[b], runeToByte[r] = r, int16(b)
	}
}

// appendBytes appends the bytes that the vocabulary entry name stands for. A name with a
// character outside the alphabet (an added token, say) stands for its own UTF-8.
func appendBytes(dst, name []byte) []byte {
	start := len(dst)
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRune(name[i:])
		if int(r) >= len(runeToByte) || runeToByte[r] < 0 {
			return append(dst[:start], name...)
		}
		dst = append(dst, byte(runeToByte[r]))
		i += n
	}
	return dst
}

// appendValid appends b with each invalid sequence replaced by one U+FFFD: the longest that could begin a
// character, or one byte (Unicode 16.0 section 3.9, and Rust's from_utf8_lossy). (A range loop gives one for
// every byte and strings.ToValidUTF8 one for every run; both differ from the reference.)
func appendValid(dst, b []byte) []byte {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			for n < len(b) && !utf8.FullRune(b[:n+1]) {
				n++
			}
			dst = utf8.AppendRune(dst, utf8.RuneError)
		} else {
			dst = append(dst, b[:n]...)
		}
		b = b[n:]
	}
	return dst
}
