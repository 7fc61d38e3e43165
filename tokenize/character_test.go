package tokenize

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// arithmetic is the vocabulary of the default model.
func arithmetic() Character {
	return Character{
		Specials: []string{"<pad>", "<eos>"},
		Pieces:   strings.Split(`0123456789+-=;c\boxed{}`, ""),
		EOS:      "<eos>", Pad: "<pad>",
	}
}

func TestCharacter(t *testing.T) {
	tok, err := NewCharacter(arithmetic())
	if err != nil {
		t.Fatal(err)
	}
	if tok.VocabSize() != 25 {
		t.Errorf("VocabSize = %d, want 25", tok.VocabSize())
	}
	if eos, ok := tok.EOS(); !ok || eos != 1 {
		t.Errorf("EOS = %d, %v, want 1", eos, ok)
	}
	const text = `3-9-0=4c;\boxed{714}<eos>`
	want := []int32{5, 13, 11, 13, 2, 14, 6, 16, 15, 17, 18, 19, 20, 21, 22, 23, 9, 3, 6, 24, 1}
	if got := tok.Encode(text); !slices.Equal(got, want) {
		t.Errorf("Encode(%q) = %v, want %v", text, got, want)
	}
	if got := tok.Decode(want, false); got != text {
		t.Errorf("Decode = %q, want %q", got, text)
	}
	if got := tok.Decode(want, true); got != strings.TrimSuffix(text, "<eos>") {
		t.Errorf("Decode without specials = %q", got)
	}
	if err := tok.Check("1+1=2<eos>"); err != nil {
		t.Errorf("Check of a text in the vocabulary: %v", err)
	}
	if err := tok.Check("1+1 =2"); err == nil || !strings.Contains(err.Error(), `' ' in " =2"`) {
		t.Errorf("Check = %v, want an error that names the space", err)
	}
}

func TestCharacterSave(t *testing.T) {
	c := arithmetic()
	c.Pieces = append(c.Pieces, " ", "\n", `\boxed{`, "中")
	dir := t.TempDir()
	if err := c.Save(dir); err != nil {
		t.Fatal(err)
	}
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for id, piece := range slices.Concat(c.Specials, c.Pieces) {
		if got := tok.Encode(piece); !slices.Equal(got, []int32{int32(id)}) {
			t.Errorf("Encode(%q) = %v, want %d", piece, got, id)
		}
		if got := tok.Decode([]int32{int32(id)}, false); got != piece {
			t.Errorf("Decode(%d) = %q, want %q", id, got, piece)
		}
	}
	if eos, ok := tok.EOS(); !ok || eos != 1 {
		t.Errorf("EOS = %d, %v, want 1", eos, ok)
	}
	// The same bytes each time: the default model's files are checked in.
	first, err := os.ReadFile(dir + "/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Save(dir); err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(dir + "/tokenizer.json")
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("saved twice, tokenizer.json differs (%v)", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
	if err := c.Save(dir + "/none"); err == nil {
		t.Error("saved into a folder that is not there")
	}
}

func TestCharacterErrors(t *testing.T) {
	for _, c := range []struct {
		c    Character
		want string
	}{
		{Character{Pieces: []string{"a", "a"}}, `"a" is empty or is listed twice`},
		{Character{Pieces: []string{""}}, "empty"},
		{Character{Pieces: []string{"a"}, EOS: "<eos>"}, `EOS "<eos>" is not among the specials`},
		{Character{Specials: []string{"Ġ"}, Pieces: []string{" "}}, "both written"},
		{Character{Pieces: []string{"é"}}, `"é" would decode to`},
	} {
		if _, err := NewCharacter(c.c); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an error with %q", c.c, err, c.want)
		}
	}
}
