package data

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onering/tokenize"
)

// pieces are the tokens of the task, one character each, after the specials.
var pieces = strings.Split(`0123456789+-=;c\boxed{}`, "")

// specials are the first two tokens.
var specials = []string{"<pad>", "<eos>"}

// maxResponse bounds a response in tokens, EOS included: the longest worked response has
// 40.
const maxResponse = 40

// The embedded tokenizer has the ids of Specials and Pieces, and each character of a text
// is a token.
func TestEmbeddedTokenizer(t *testing.T) {
	tok, err := tokenize.Load("arithmetic/model")
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(specials, pieces)
	if eos, ok := tok.EOS(); tok.VocabSize() != len(all) || !ok || all[eos] != "<eos>" {
		t.Errorf("%d tokens, of which %d ends a text, %t", tok.VocabSize(), eos, ok)
	}
	for id, piece := range all {
		if got := tok.Encode(piece); !slices.Equal(got, []int32{int32(id)}) {
			t.Errorf("%q has the ids %v, want %d", piece, got, id)
		}
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

func TestWorkedIsRight(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	longest := 0
	for range 20000 {
		p := DrawSum(r, 3, false)
		text := p.Worked(r, 0)
		if want := boxed(p.Answer()); !strings.HasSuffix(text, ";"+want) {
			t.Fatalf("%s%s: want the end %s", p.Prompt(), text, want)
		}
		longest = max(longest, len(text)+1)
	}
	if longest != maxResponse {
		t.Errorf("the longest worked response has %d tokens, maxResponse says %d", longest, maxResponse)
	}
}

func TestExamples(t *testing.T) {
	for prompt, want := range map[sum]string{
		{129, 955, false}: `9+5+0=14;2+5+1=8;1+9+0=10;\boxed{1084}`,
		{843, 129, true}:  `3-9-0=4c;4-2-1=1;8-1-0=7;\boxed{714}`,
	} {
		if got := prompt.Worked(nil, 0); got != want {
			t.Errorf("%s: got %s, want %s", prompt.Prompt(), got, want)
		}
	}
}

// TestDigits: problems have as many digits as requested, and their working has a step for
// each digit and the right answer.
func TestDigits(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for digits := 1; digits <= 17; digits++ {
		for i := range 200 {
			p := DrawSum(r, digits, i%2 == 0)
			text := p.Worked(r, 0)
			if len(p.Prompt()) != 2*digits+2 || p.HeldOut() != (i%2 == 0) || strings.Count(text, ";") != digits || !strings.HasSuffix(text, ";"+boxed(p.Answer())) {
				t.Fatalf("%s%s has not %d digits, or a wrong answer", p.Prompt(), text, digits)
			}
		}
	}
}

func TestHeldOutShare(t *testing.T) {
	held := 0
	for a := 100; a < 1000; a++ {
		for b := 100; b < 1000; b++ {
			if (sum{a, b, false}).HeldOut() {
				held++
			}
		}
	}
	if share := float64(held) / (900 * 900); share < 0.12 || share > 0.13 {
		t.Errorf("%.4f of the problems are held out, want an eighth", share)
	}
}

func TestSlipsShowInTheAnswer(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	wrong := 0
	for range 2000 {
		p := DrawSum(r, 3, true)
		if !strings.HasSuffix(p.Worked(r, 0.1), boxed(p.Answer())) {
			wrong++
		}
	}
	// Each of three steps slips with a chance of 10 %: 1 - 0.9^3 = 27 % of answers are wrong, a
	// little less because two slips may cancel.
	if wrong < 440 || wrong > 640 {
		t.Errorf("%d of 2000 worked responses with slips are wrong, want about 540", wrong)
	}
}
