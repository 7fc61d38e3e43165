//go:build ignore

// gen_unicode writes ../classes.txt from classes.json, the Unicode
// data of the reference tokenizer as classes.py measured it:
//
//	go generate ./tokenize
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"unicode"

	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/unicode/rangetable"
)

type class struct {
	Count  int
	Ranges [][2]rune
}

func (c class) runes() []rune {
	var runes []rune
	for _, r := range c.Ranges {
		for p := r[0]; p <= r[1]; p++ {
			runes = append(runes, p)
		}
	}
	if len(runes) != c.Count {
		log.Fatalf("gen_unicode: %d code points, want %d", len(runes), c.Count)
	}
	return runes
}

func main() {
	data, err := os.ReadFile("testdata/classes.json")
	if err != nil {
		log.Fatal(err)
	}
	var in struct {
		Source                  string
		L, N, Marks, Decomposes class
	}
	if err := json.Unmarshal(data, &in); err != nil {
		log.Fatal(err)
	}

	var out bytes.Buffer
	fmt.Fprintf(&out, "# Written by gen_unicode.go from %s and x/text with Unicode %s.\n", in.Source, norm.Version)
	line(&out, "letters", in.L.runes())
	line(&out, "numbers", in.N.runes())
	line(&out, "inert", inert(in.Marks, in.Decomposes))
	if err := os.WriteFile("classes.txt", out.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}

// inert lists the code points that x/text normalizes and the reference does not.
func inert(marks, decomposes class) []rune {
	isMark, hasParts := rangetable.New(marks.runes()...), rangetable.New(decomposes.runes()...)
	var runes []rune
	unknown := map[rune]bool{}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		s := string(r)
		if r >= 0xD800 && r < 0xE000 {
			continue
		}
		parts := norm.NFD.String(s) != s
		mark := !parts && norm.NFC.PropertiesString(s).CCC() != 0
		switch {
		case mark && !unicode.Is(isMark, r):
			unknown[r] = true
		case parts && !unicode.Is(hasParts, r):
			unknown[r] = true
			// Its later parts must not compose either.
			for _, part := range []rune(norm.NFD.String(s))[1:] {
				unknown[part] = true
			}
		case !mark && unicode.Is(isMark, r), !parts && unicode.Is(hasParts, r):
			log.Fatalf("gen_unicode: the reference normalizes %U, x/text does not", r)
		}
	}
	for r := range unknown {
		runes = append(runes, r)
	}
	return runes
}

// line writes the name of a class and its ranges in hexadecimal.
func line(out *bytes.Buffer, name string, runes []rune) {
	slices.Sort(runes)
	out.WriteString(name)
	for i := 0; i < len(runes); {
		end := i
		for end+1 < len(runes) && runes[end+1] == runes[end]+1 {
			end++
		}
		fmt.Fprintf(out, " %x-%x", runes[i], runes[end])
		i = end + 1
	}
	out.WriteByte('\n')
}
