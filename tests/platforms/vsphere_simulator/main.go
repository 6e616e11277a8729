// Govmomi's simulator of ESXi and vCenter on loopback, told by lines of JSON what to refuse.
package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"net/url"
	"os"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// An order is one line: what to refuse from now on, how often, and after how long.
type order struct {
	Do, Method, Fault string
	Count, Delay      int
}

// The products' own faults. Each has its page, which says when it is thrown, at
// https://developer.broadcom.com/xapis/virtual-infrastructure-json-api/8.0.2.0/data-structures/NAME
var faults = map[string]types.BaseMethodFault{
	"RestrictedVersion":   &types.RestrictedVersion{},
	"NotAuthenticated":    &types.NotAuthenticated{NoPermission: types.NoPermission{PrivilegeId: "System.View"}},
	"NoPermission":        &types.NoPermission{PrivilegeId: "VirtualMachine.Inventory.Create"},
	"NoNetworkPermission": &types.NoPermission{PrivilegeId: "Host.Config.Network"},
	"TaskInProgress":      &types.TaskInProgress{Task: types.ManagedObjectReference{Type: "Task", Value: "task-1"}},
	"InvalidArgument":     &types.InvalidArgument{InvalidProperty: "configSpec.cpuAffinity"},
	"ConcurrentAccess":    &types.ConcurrentAccess{},
}

func main() {
	esx := flag.Bool("esx", false, "one ESXi host in place of a vCenter")
	user := flag.String("user", "tare", "who may log in")
	flag.Parse()
	model := simulator.VPX()
	if *esx {
		model = simulator.ESX()
	}
	if err := model.Create(); err != nil {
		panic(err)
	}
	model.Service.TLS = new(tls.Config)
	login := url.UserPassword(*user, os.Getenv("SIMULATOR_PASSWORD"))
	model.Service.Listen = &url.URL{Host: "127.0.0.1:0", User: login}
	server := model.Service.NewServer()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	say(map[string]string{"port": server.URL.Port(), "certificate": string(certificate)})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked order
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		switch asked.Do {
		case "refuse":
			model.Service.AddFaultRule(&simulator.FaultInjectionRule{
				MethodName: asked.Method, ObjectType: "*", ObjectName: "*", Probability: 1,
				FaultType: simulator.FaultTypeCustom, Fault: faults[asked.Fault],
				Message: asked.Fault, MaxCount: asked.Count, Delay: asked.Delay, Enabled: true,
			})
		case "allow":
			model.Service.ClearFaultRules()
		case "cut":
			server.CloseClientConnections()
		}
		say(map[string]string{"done": asked.Do})
	}
	server.Close()
	model.Remove()
}

func say(what any) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}
