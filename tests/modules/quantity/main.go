// The API server's own reader of quantities. Each line is a JSON text; the answer is the number that it means and the
// form in which the API server writes it back, or what is wrong with it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/api/resource"
)

type answer struct {
	Number    string `json:"number,omitempty"`
	Canonical string `json:"canonical,omitempty"`
	Error     string `json:"error,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		out, err := json.Marshal(read(lines.Bytes()))
		if err != nil {
			panic(err)
		}
		fmt.Println(string(out))
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}

func read(content []byte) answer {
	var found resource.Quantity
	if err := found.UnmarshalJSON(content); err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Canonical: found.String(), Number: found.AsDec().String()}
}
