package models_test

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"onering/models"
	_ "onering/models/all"
)

const nf4Golden = "testdata/nf4"

// TestReadNF4: a folder of bitsandbytes in nf4 has the numbers that bitsandbytes computes, in float32
// and held in NF4; what Save writes of it is a plain model.
func TestReadNF4(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(nf4Golden, "crc.json"))
	if err != nil {
		t.Fatal(err)
	}
	var crcs map[string]uint32
	if err := json.Unmarshal(text, &crcs); err != nil {
		t.Fatal(err)
	}
	for _, base := range []models.DType{models.F32, models.NF4} {
		m, w, err := models.LoadHeld(nf4Golden, models.Compute{Base: base})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		all := make([]float32, len(w.Data))
		w.Each(func(first int, part []float32) { copy(all[first:], part) })
		for name, want := range crcs {
			p, _ := w.Layout.Find(name)
			if got := crc32.ChecksumIEEE(models.Bytes(all[p.Offset : p.Offset+p.Size])); got != want {
				t.Errorf("%s in %v: the numbers have the CRC %d, want %d", name, base, got, want)
			}
		}
		if base != models.F32 {
			continue
		}
		dir := filepath.Join(t.TempDir(), "plain")
		if err := m.Save(dir, w, models.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "config.json")); err != nil || !json.Valid(text) || bytes.Contains(text, []byte(models.Quantized)) {
			t.Errorf("%v: what was saved has the config %s", err, text)
		}
		_, again, err := models.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if !slices.Equal(again.Data, w.Data) {
			t.Error("what was saved has other weights")
		}
	}
}

// TestReadNF4Damaged: each error names the tensor and what is wrong.
func TestReadNF4Damaged(t *testing.T) {
	tensors, err := os.ReadFile(filepath.Join(nf4Golden, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ from, to, want string }{
		{`"quant_type": "nf4"`, `"quant_type": "fp4"`, "is not that of a matrix in nf4"},
		{`"blocksize": 64`, `"blocksize": 00`, "not JSON"},
		{`"blocksize": 64`, `"blocksize": 32`, `.absmax" has`},
		{`"shape": [64, 64]`, `"shape": [64, 32]`, "elements, want 1024"},
		{`"shape": [64, 64]`, `"shape": [-4, 64]`, "is not that of a matrix in nf4"},
		{`"nested_blocksize": 256`, `"nested_blocksize": -99`, "no nested_blocksize"},
		{`mlp.up_proj.weight.absmax"`, `mlp.up_proj.weight.absmix"`, `.absmax" has 0 elements, want 64`},
		{`mlp.up_proj.weight.nested_absmax"`, `mlp.up_proj.weight.nested_absmix"`, `.nested_absmax" has 0 elements, want 1`},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(nf4Golden)); err != nil {
			t.Fatal(err)
		}
		damaged := bytes.Replace(tensors, []byte(x.from), []byte(x.to), 1)
		if len(damaged) != len(tensors) || bytes.Equal(damaged, tensors) {
			t.Fatalf("%s was not replaced", x.from)
		}
		if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), damaged, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := models.Check(dir); err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "_proj.weight") {
			t.Errorf("%s: %v, want %q", x.to, err, x.want)
		}
	}
}

// TestSavedPlain: what Save writes of a quantized model says nothing of it, wherever it was said.
func TestSavedPlain(t *testing.T) {
	dir, w := saved(t, func(*models.Weights) {})
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	const quantized = `"quantization_config" : {"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "nf4"}`
	inner := strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(string(text)), "{"), "}"))
	first, rest, _ := strings.Cut(inner, ",")
	for _, config := range []string{quantized + ",\n" + inner, inner + ",\n" + quantized, first + ", " + quantized + "," + rest} {
		m, err := models.ParseConfig([]byte("{"+config+"}"), nil)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "m")
		if err := m.Save(dir, w, models.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		var x, y map[string]any
		if json.Unmarshal(got, &x) != nil || json.Unmarshal(text, &y) != nil || !reflect.DeepEqual(x, y) {
			t.Errorf("of %s this was saved: %s", config, got)
		}
	}
}
