package models

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"onering/internal/files"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestReferenceFile reads a file that the reference library wrote (testdata/make_types.py).
func TestReferenceFile(t *testing.T) {
	f, err := OpenSafetensors("testdata/types.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := f.Metadata()["note"]; got != `a <b> "c"` {
		t.Errorf("metadata note %q", got)
	}
	inf := float32(math.Inf(1))
	exact := []float32{0, float32(math.Copysign(0, -1)), 1, -1.5, 0.1, 0x1p-14, 0x1p-24, 65504, inf, -inf, 3, -2}
	half, brain := slices.Clone(exact), slices.Clone(exact)
	half[4] = 0.0999755859375
	brain[4], brain[7] = 0.10009765625, 65536
	for name, want := range map[string][]float32{"f64": exact, "f32": exact, "f16": half, "bf16": brain, "scalar": {2.5}, "empty": {}} {
		info, _ := f.Info(name)
		if info.Elements != len(want) {
			t.Errorf("%s: %+v, want %d elements", name, info, len(want))
			continue
		}
		got := make([]float32, len(want))
		if err := f.ReadFloat32(name, got, 0); err != nil {
			t.Error(err)
		}
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Errorf("%s[%d] = %g, want %g", name, i, got[i], want[i])
			}
		}
		if len(want) == 12 {
			part := make([]float32, 2)
			if err := f.ReadFloat32(name, part, 10); err != nil || !slices.Equal(part, want[10:]) {
				t.Errorf("%s[10:12] = %v, %v", name, part, err)
			}
		}
	}
	for name, want := range map[string][]int64{"i64": {-1, 1 << 40}, "i32": {-1, 7}} {
		if got, err := f.ReadInt64(name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s = %v, %v, want %v", name, got, err, want)
		}
	}
	if info, _ := f.Info("f8"); info.DType != Invalid || info.TypeName != "F8_E4M3" {
		t.Errorf("f8: %+v", info)
	}
	for _, c := range []struct {
		name     string
		n, first int
		want     string
	}{
		{"f8", 2, 0, `tensor "f8": holds F8_E4M3, want F32`},
		{"u8", 3, 0, "holds U8"},
		{"nothing", 1, 0, `tensor "nothing": not in the file`},
		{"f32", 13, 0, "shape [3 4] has 12"},
		{"f32", 1, 12, "elements 12 to 13"},
		{"f32", 1, -1, "elements -1"},
	} {
		err := f.ReadFloat32(c.name, make([]float32, c.n), c.first)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "types.safetensors") {
			t.Errorf("read of %d elements of %s: %v, want %q", c.n, c.name, err, c.want)
		}
	}
	if _, err := f.ReadInt64("f32"); err == nil {
		t.Error("F32 read as integers")
	}
}

// file is a safetensors file with that header and n bytes of data.
func file(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}

func entry(dtype, shape, offsets string) string {
	return fmt.Sprintf(`{"dtype":%q,"shape":%s,"data_offsets":%s}`, dtype, shape, offsets)
}

func TestMalformedFiles(t *testing.T) {
	huge := binary.LittleEndian.AppendUint64(nil, 1<<63)
	large := binary.LittleEndian.AppendUint64(nil, maxHeader)
	one := entry("F32", "[1]", "[0,4]")
	cases := []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "0 bytes"},
		{"short", make([]byte, 7), "7 bytes"},
		{"huge header", huge, "9223372036854775808 bytes, at most"},
		{"header beyond the file", large, "the file has 0 after"},
		{"empty header", file("", 0), "it is empty"},
		{"array", file("[]", 0), "not an object"},
		{"number", file("1", 0), "not an object"},
		{"cut JSON", file(`{"a":`, 0), "ends in the middle"},
		{"trailing text", file(`{}{}`, 0), "more text"},
		{"not UTF-8", file("{\"\xff\":"+one+"}", 4), "not UTF-8"},
		{"deep", file(`{"a":`+strings.Repeat("[", 20000)+"}", 0), "nested too deeply"},
		{"same tensor twice", file(`{"a":`+one+`,"a":`+one+`}`, 4), `"a" is stated twice`},
		{"same key twice", file(`{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4), `"a.dtype" is stated twice`},
		{"unknown key", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}`, 4), `unknown key "x"`},
		{"other case", file(`{"a":{"DType":"F32","shape":[1],"data_offsets":[0,4]}}`, 4), `unknown key "DType"`},
		{"no dtype", file(`{"a":{"shape":[1],"data_offsets":[0,4]}}`, 4), "no dtype"},
		{"no shape", file(`{"a":{"dtype":"F32","data_offsets":[0,4]}}`, 4), "no shape"},
		{"no offsets", file(`{"a":{"dtype":"F32","shape":[1]}}`, 4), "want [begin, end]"},
		{"null shape", file(`{"a":`+entry("F32", "null", "[0,4]")+`}`, 4), "want an array"},
		{"negative size", file(`{"a":`+entry("F32", "[-1]", "[0,4]")+`}`, 4), `-1 is not a whole number`},
		{"fraction", file(`{"a":`+entry("F32", "[1.0]", "[0,4]")+`}`, 4), `found [1.0]`},
		{"string size", file(`{"a":`+entry("F32", `["x"]`, "[0,4]")+`}`, 4), "want an array"},
		{"product overflows", file(`{"a":`+entry("F32", "[4294967296,4294967296,4]", "[0,0]")+`}`, 0), "too many elements"},
		{"bytes overflow", file(`{"a":`+entry("F32", "[4611686018427387904]", "[0,0]")+`}`, 0), "not a whole number"},
		{"three offsets", file(`{"a":`+entry("F32", "[1]", "[0,4,8]")+`}`, 4), "want [begin, end]"},
		{"backward", file(`{"a":`+entry("F32", "[1]", "[4,0]")+`}`, 4), "want [begin, end]"},
		{"wrong length", file(`{"a":`+entry("F32", "[2]", "[0,4]")+`}`, 4), "takes 8 bytes, data_offsets [0 4] hold 4"},
		{"truncated", file(`{"a":`+one+`}`, 3), "truncated"},
		{"longer", file(`{"a":`+one+`}`, 5), "damaged"},
		{"overlap", file(`{"a":`+one+`,"b":`+entry("F32", "[1]", "[2,6]")+`}`, 6), "overlap or gap"},
		{"gap", file(`{"a":`+one+`,"b":`+entry("F32", "[1]", "[8,12]")+`}`, 12), "overlap or gap"},
		{"metadata", file(`{"__metadata__":{"a":1}}`, 0), "__metadata__"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.safetensors")
			if err := os.WriteFile(path, c.data, 0o666); err != nil {
				t.Fatal(err)
			}
			_, err := OpenSafetensors(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want the path and %q", err, c.want)
			}
		})
	}
	// A header that claims 100 MB in a file of 8 bytes must allocate little.
	if n := testing.AllocsPerRun(10, func() { parseSafetensors(bytes.NewReader(large), 8) }); n > 20 {
		t.Errorf("refusing a long header took %g allocations", n)
	}
	if _, err := OpenSafetensors(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder as a file: %v", err)
	}
}

func TestDoubleBeyondFloat32(t *testing.T) {
	data := file(`{"a":`+entry("F64", "[3]", "[0,24]")+`}`, 0)
	for _, x := range []float64{math.Inf(1), math.MaxFloat32, 1e39} {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(x))
	}
	f, err := parseSafetensors(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.ReadFloat32("a", make([]float32, 2), 0); err != nil {
		t.Errorf("infinity and the largest float32: %v", err)
	}
	if err := f.ReadFloat32("a", make([]float32, 3), 0); err == nil || !strings.Contains(err.Error(), "1e+39") {
		t.Errorf("1e39: %v", err)
	}
}

func FuzzOpenSafetensors(f *testing.F) {
	reference, err := os.ReadFile("testdata/types.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(reference)
	f.Add(file(`{"a":`+entry("BF16", "[2,1]", "[0,4]")+`,"b":`+entry("F32", "[]", "[4,8]")+`}`, 8))
	f.Add(file(`{"a":`+entry("F32", "[4611686018427387903]", "[0,0]")+`}  `, 0))
	f.Add(binary.LittleEndian.AppendUint64(nil, math.MaxUint64))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSafetensors(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		covered := s.data
		for _, name := range s.Names() {
			info, _ := s.Info(name)
			covered += info.end - info.begin
			if info.DType == F32 || info.DType == F16 || info.DType == BF16 {
				// An accepted tensor lies in the file, so its size is small.
				if err := s.ReadFloat32(name, make([]float32, info.Elements), 0); err != nil {
					t.Errorf("accepted, then: %v", err)
				}
			}
		}
		if covered != int64(len(data)) {
			t.Errorf("header and tensors cover %d of %d bytes", covered, len(data))
		}
	})
}

func TestWriteAndRead(t *testing.T) {
	dir := t.TempDir()
	round := map[DType]func(float32) float32{
		F32:  func(x float32) float32 { return x },
		F16:  func(x float32) float32 { return F16ToFloat32(Float32ToF16(x)) },
		BF16: func(x float32) float32 { return BF16ToFloat32(Float32ToBF16(x)) },
	}
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]DType{F32, F16, BF16}).Draw(t, "dtype")
		var tensors []Tensor
		for i := range rapid.IntRange(0, 4).Draw(t, "tensors") {
			shape := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 3).Draw(t, "shape")
			n := 1
			for _, s := range shape {
				n *= s
			}
			data := rapid.SliceOfN(rapid.Float32Range(-6e4, 6e4), n, n).Draw(t, "data")
			tensors = append(tensors, Tensor{Name: fmt.Sprintf("tensor <%d> \u00e9\"", i), Shape: shape, Data: data})
		}
		path := filepath.Join(dir, "m.safetensors")
		if err := WriteSafetensors(files.WriteFile, path, d, tensors, map[string]string{"k": "v"}); err != nil {
			t.Fatal(err)
		}
		f, err := OpenSafetensors(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Metadata()["k"] != "v" || f.data%8 != 0 {
			t.Fatalf("metadata %v, data at %d", f.Metadata(), f.data)
		}
		for _, want := range tensors {
			info, _ := f.Info(want.Name)
			if info.DType != d || !slices.Equal(info.Shape, want.Shape) {
				t.Fatalf("%q: %+v", want.Name, info)
			}
			got := make([]float32, len(want.Data))
			if err := f.ReadFloat32(want.Name, got, 0); err != nil {
				t.Fatal(err)
			}
			for i, x := range want.Data {
				if got[i] != round[d](x) {
					t.Fatalf("%s: %g came back as %g", d, x, got[i])
				}
			}
		}
	})
}

// TestChunks reads and writes a tensor longer than the conversion buffer.
func TestChunks(t *testing.T) {
	data := make([]float32, 3*chunkBytes/2+5)
	for i := range data {
		data[i] = float32(i % 256)
	}
	for _, d := range []DType{F32, F16, BF16} {
		path := filepath.Join(t.TempDir(), "m.safetensors")
		if err := WriteSafetensors(files.WriteFile, path, d, []Tensor{{Name: "a", Shape: []int{len(data)}, Data: data}}, nil); err != nil {
			t.Fatal(err)
		}
		f, err := OpenSafetensors(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got := make([]float32, len(data))
		if err := f.ReadFloat32("a", got, 0); err != nil || !slices.Equal(got, data) {
			t.Errorf("%s: differs, %v", d, err)
		}
		if err := os.Truncate(path, 1000); err != nil {
			t.Fatal(err)
		}
		if err := f.ReadFloat32("a", got, 0); err == nil || !strings.Contains(err.Error(), "became shorter") {
			t.Errorf("%s: read of a file cut while open: %v", d, err)
		}
	}
}

func TestWriteErrorsLeaveNothing(t *testing.T) {
	one := Tensor{Name: "a", Shape: []int{1}, Data: []float32{70000}}
	cases := []struct {
		d       DType
		tensors []Tensor
		want    string
	}{
		{F16, []Tensor{one}, `tensor "a": element 0 is 70000, which F16 cannot hold`},
		{I64, []Tensor{one}, "cannot write I64"},
		{F32, []Tensor{one, one}, "the name is taken"},
		{F32, []Tensor{{Name: "a", Shape: []int{2}, Data: []float32{1}}}, "does not hold its 1 elements"},
	}
	for _, c := range cases {
		dir := t.TempDir()
		path := filepath.Join(dir, "m.safetensors")
		if err := os.WriteFile(path, []byte("before"), 0o666); err != nil {
			t.Fatal(err)
		}
		err := WriteSafetensors(files.WriteFile, path, c.d, c.tensors, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if b, _ := os.ReadFile(path); string(b) != "before" {
			t.Error("a failed write changed the file")
		}
		if e, _ := os.ReadDir(dir); len(e) != 1 {
			t.Errorf("a failed write left %v", e)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	data := make([]float32, 16<<20)
	for i := range data {
		data[i] = float32(i % 251)
	}
	for _, d := range []DType{F32, F16, BF16} {
		b.Run(d.String(), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "m.safetensors")
			if err := WriteSafetensors(files.WriteFile, path, d, []Tensor{{Name: "a", Shape: []int{len(data)}, Data: data}}, nil); err != nil {
				b.Fatal(err)
			}
			f, err := OpenSafetensors(path)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			b.SetBytes(int64(len(data) * d.Size()))
			for b.Loop() {
				if err := f.ReadFloat32("a", data, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
