package qwen2_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"onering/models"
	"onering/models/graph"
	"onering/models/onnx"
)

// onCPU are the operators, with the types of their first inputs, that the CUDA
// provider has no kernel for, so that they run on the CPU there, with their
// inputs and outputs copied to it and back. Why each is still used:
var onCPU = map[string]string{
	"ReduceMax double": "as for float: running sums",
	"ReduceMax float":  "the provider's kernel is of version 18, the operator of 20: in float32 sampling and the head's forward graph copy their logits to the CPU",
	"Pad float":        "the provider's kernel is of version 18, the operator of 23: in float32 the gradient of attention in blocks of queries, in all types heads of a width that is no multiple of 16",
	"com.microsoft.GroupQueryAttention float": "it has 16-bit kernels only: prefill in float32",
}

// A cudaKernel is one line of testdata/cuda_kernels.txt.
type cudaKernel struct {
	schema, version int // of the operator at opset 23, and that the kernel takes
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

// serves tells whether the kernel takes a node with inputs of these types, "" for
// one that is left out, and what the node's outputs are then; not nil also where
// it does not.
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
					is = onnx.ElemType(a.Value.(int64)).String()
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

// TestCUDAKernels looks up every operator of every Program, with the types it is
// used on, among the kernels that the CUDA provider registers. What has none is
// listed in onCPU.
func TestCUDAKernels(t *testing.T) {
	if graph.Opset != 23 {
		t.Fatalf("graphs are of opset %d: take the versions of the schemas in cuda_kernels.txt anew", graph.Opset)
	}
	kernels := cudaKernels(t)
	fallen := map[string]map[string]bool{} // by operator and type: the Programs
	used := map[string]bool{}
	for _, compute := range computes {
		c := small()
		c.Compute = compute
		for what, p := range allPrograms(t, c) {
			m, err := onnx.Decode(p.ONNX)
			if err != nil {
				t.Fatal(err)
			}
			types := map[string]string{"": ""}
			for _, v := range m.Graph.Inputs {
				types[v.Name] = v.Type.String()
			}
			for _, v := range m.Graph.Initializers {
				types[v.Name] = v.Type.String()
			}
			for _, n := range m.Graph.Nodes {
				name := n.Op
				if n.Domain != "" {
					name = n.Domain + "." + n.Op
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
					// Graphs of 16 bits are for a GPU: all of them stay there, but
					// for heads of an odd width.
					if compute != models.F32 && !(n.Op == "Pad" && strings.HasSuffix(what, "width 6")) {
						t.Errorf("program %q in %s: %s is not for the GPU: %s", what, compute, name, why)
					}
					key := name + " " + in[0]
					if onCPU[key] == "" {
						t.Errorf("program %q in %s: %s falls to the CPU: %s", p.Name, compute, key, why)
					}
					if fallen[key] == nil {
						fallen[key] = map[string]bool{}
					}
					fallen[key][p.Name] = true
				}
			}
			// The types that were worked out are those that the graph states.
			for _, v := range m.Graph.Outputs {
				if types[v.Name] != v.Type.String() {
					t.Errorf("program %q: output %q is %s, worked out as %s", p.Name, v.Name, v.Type, types[v.Name])
				}
			}
		}
	}
	for key, why := range onCPU {
		if fallen[key] == nil {
			t.Errorf("%s is said to fall to the CPU (%s), but has a kernel or is not used", key, why)
			continue
		}
		t.Logf("on the CPU: %s in %s: %s", key, strings.Join(slices.Sorted(maps.Keys(fallen[key])), ", "), why)
	}
	t.Logf("%d operators in use", len(used))
}
