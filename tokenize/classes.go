package tokenize

import (
	_ "embed"
	"strconv"
	"strings"
	"unicode"
)

//go:generate go run testdata/gen_unicode.go
//go:embed classes.txt
var classesText string

// letters and numbers are the characters that the reference matches with \p{L} and \p{N} (Unicode
// 16.0); inert are characters that x/text's NFC changes or moves and the reference's does not.
var letters, numbers, inert = class("letters"), class("numbers"), class("inert")

// class reads the ranges of a line of classes.txt.
func class(name string) *unicode.RangeTable {
	_, line, _ := strings.Cut(classesText, "\n"+name+" ")
	line, _, _ = strings.Cut(line, "\n")
	t := new(unicode.RangeTable)
	for part := range strings.SplitSeq(line, " ") {
		first, last, _ := strings.Cut(part, "-")
		lo, err := strconv.ParseUint(first, 16, 32)
		hi, failed := strconv.ParseUint(last, 16, 32)
		switch {
		case err != nil || failed != nil:
			panic("tokenize: classes.txt: " + name + " " + part)
		case hi > 0xffff:
			t.R32 = append(t.R32, unicode.Range32{Lo: uint32(lo), Hi: uint32(hi), Stride: 1})
		default:
			t.R16 = append(t.R16, unicode.Range16{Lo: uint16(lo), Hi: uint16(hi), Stride: 1})
			if hi <= unicode.MaxLatin1 {
				t.LatinOffset++
			}
		}
	}
	return t
}
