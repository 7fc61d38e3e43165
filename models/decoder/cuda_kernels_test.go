package decoder_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"onering/models"
	"onering/models/onnx"
)

// onCPU are the operators of the graphs that are not for CUDA, with the types of their
// first inputs, for which the CUDA provider has no kernel: a session would run them on
// the CPU and copy their inputs and outputs. Graphs for CUDA use none of these operators.
var onCPU = []string{
	"Pad float",        // the kernel is of version 18, the operator of 23
	"ReduceMax double", // the kernel is of version 18, the operator of 20
	"ReduceMax float",
	"com.microsoft.GroupQueryAttention float", // The provider has 16-bit kernels alone.
}

// A cudaKernel is one line of testdata/cuda_kernels.txt.
type cudaKernel struct {
	schema, version int // inputs of the operator at opset 23 that the kernel takes
	in, out         []string
	types           map[string][]string // by letter
}

func cudaKernels(t *testing.T) map[string]cudaKernel {
	t.Helper()
	text, err := os.ReadFile("testdata/cuda_kernels.txt")
	if err != nil {
		t.Fatal(err)
	}
	kernels := map[string]cudaKernel{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSpace(line), " | ")
		k := cudaKernel{types: map[string][]string{}}
		k.schema, err = strconv.Atoi(f[1])
		if err == nil {
			k.version, err = strconv.Atoi(strings.TrimSuffix(f[2], "+"))
		}
		in, out, ok := strings.Cut(f[3], " -> ")
		if err != nil || !ok {
			t.Fatalf("cuda_kernels.txt: %q: %v", line, err)
		}
		k.in, k.out = strings.Fields(in), strings.Fields(out)
		for _, types := range f[4:] {
			words := strings.Fields(types)
			k.types[words[0]] = words[1:]
		}
		kernels[f[0]] = k
	}
	return kernels
}

// letter is the type letter of argument i.
func letter(letters []string, i int) (string, bool) {
	if i < len(letters) {
		return strings.TrimSuffix(letters[i], "*"), true
	}
	if n := len(letters); n > 0 && strings.HasSuffix(letters[n-1], "*") {
		return strings.TrimSuffix(letters[n-1], "*"), true
	}
	return "", false
}

// serves tells whether the kernel takes a node with inputs of these types, "" for a
// missing input, and returns the types of the node's outputs, which are not nil even if
// the kernel does not take it.
func (k cudaKernel) serves(n onnx.Node, types []string) (outputs []string, why string) {
	if k.version != k.schema {
		why = fmt.Sprintf("the kernel is of version %d, the operator of %d", k.version, k.schema)
	}
	bound := map[string]string{}
	for i, is := range types {
		if is == "" {
			continue
		}
		l, ok := letter(k.in, i)
		if !ok {
			return nil, fmt.Sprintf("it has no input %d", i)
		}
		want, isLetter := k.types[l]
		if !isLetter {
			want = []string{l}
		}
		if bound[l] == "" {
			bound[l] = is
		}
		if bound[l] != is {
			return nil, fmt.Sprintf("inputs of type %s are both %s and %s", l, bound[l], is)
		}
		if !slices.Contains(want, is) && why == "" {
			why = fmt.Sprintf("input %d is %s; the kernel takes %v", i, is, want)
		}
	}
	for i := range n.Outputs {
		l, ok := letter(k.out, i)
		if !ok {
			return nil, fmt.Sprintf("it has no output %d", i)
		}
		is := bound[l]
		switch choices, isLetter := k.types[l]; {
		case is != "":
		case n.Op == "Cast":
			for _, a := range n.Attrs {
				if a.Name == "to" {
					is = onnxNames[models.DType(a.Value.(int64))]
				}
			}
			if !slices.Contains(choices, is) && why == "" {
				why = "no kernel casts to " + is
			}
		case !isLetter:
			is = l
		case len(choices) == 1:
			is = choices[0]
		default:
			return nil, fmt.Sprintf("the type of output %d is not known", i)
		}
		outputs = append(outputs, is)
	}
	return outputs, why
}

// TestCUDASumsAreOrdered: graphs for CUDA never sum along a first axis, because the
// provider's kernel adds there in any order.
func TestCUDASumsAreOrdered(t *testing.T) {
	sums := 0
	for _, b := range builds {
		for name, block := range blocks {
			for what, p := range allPrograms(t, b.of(block)) {
				first := ""
				for _, c := range p.Constants {
					if c.Type == models.I64 && len(c.Dims) == 1 && bytes.Equal(c.Raw, make([]byte, 8)) {
						first = c.Name
					}
				}
				for _, n := range p.Nodes {
					if n.Op != "ReduceSum" || b == float32Build || p.Name == "norm2.scaled" { // that has one axis
						continue
					}
					sums++
					if n.Inputs[1] == first {
						t.Errorf("%s %s in %v sums along the first axis", name, what, b)
					}
				}
			}
		}
	}
	if sums == 0 {
		t.Error("no sums")
	}
}

// onnxNames are the names that ONNX gives to types, as testdata/cuda_kernels.txt has them.
var onnxNames = map[models.DType]string{
	models.F32: "float", models.U8: "uint8", models.I8: "int8", models.I32: "int32", models.I64: "int64", models.Bool: "bool",
	models.F16: "float16", models.F64: "double", models.BF16: "bfloat16",
}

// TestCUDAKernels looks up every operator of every Program, with the types it is
// used on, among the kernels that the CUDA provider registers. In graphs for CUDA
// and in those of 16 bits each has one.
func TestCUDAKernels(t *testing.T) {
	if opset := (models.Program{}).ONNX().Opsets[0].Version; opset != 23 {
		t.Fatalf("graphs are of opset %d: take the versions of the schemas in cuda_kernels.txt anew", opset)
	}
	kernels := cudaKernels(t)
	fallen := map[string]bool{}
	used := map[string]bool{}
	for _, b := range builds {
		programs := map[string]models.Program{}
		for name, block := range blocks {
			for what, p := range allPrograms(t, b.of(block)) {
				programs[name+" "+what] = p
			}
		}
		for what, p := range programs {
			types := map[string]string{"": ""}
			for _, v := range p.Inputs {
				types[v.Name] = onnxNames[v.DType]
			}
			for _, v := range p.Constants {
				types[v.Name] = onnxNames[v.Type]
			}
			for _, n := range p.Nodes {
				name := n.Op
				if n.Domain != "" {
					name = n.Domain + "." + n.Op
				}
				if n.Op == "Split" && b != float32Build && slices.Contains(n.Outputs, "") {
					t.Errorf("program %q in %v: a part of a Split has no name, with which CUDA's kernel ends the process", what, b)
				}
				k, ok := kernels[name]
				if !ok {
					t.Fatalf("program %q: cuda_kernels.txt has no %s", p.Name, name)
				}
				used[name] = true
				var in []string
				for _, i := range n.Inputs {
					in = append(in, types[i])
				}
				out, why := k.serves(n, in)
				if out == nil {
					t.Fatalf("program %q: %s of %v: %s", p.Name, name, in, why)
				}
				for i, o := range n.Outputs {
					types[o] = out[i]
				}
				if why != "" {
					if b != float32Build {
						t.Errorf("program %q in %v: %s of %v falls to the CPU: %s", what, b, name, in, why)
					}
					fallen[name+" "+in[0]] = true
				}
			}
			// The derived types equal those that the graph states.
			for _, v := range p.Outputs {
				if types[v.Name] != onnxNames[v.DType] {
					t.Errorf("program %q: output %q is %s, worked out as %s", p.Name, v.Name, v.DType, types[v.Name])
				}
			}
		}
	}
	if found := slices.Sorted(maps.Keys(fallen)); !slices.Equal(found, onCPU) {
		t.Errorf("the graphs that are not for CUDA have no kernels for %q there, not %q", found, onCPU)
	}
	t.Logf("%d operators in use", len(used))
}
