"""A Kubernetes cluster on one machine, in network namespaces of its own, for implementations of the
Gateway API and the conformance suite.

Real: etcd, kube-apiserver, the controllers of kube-controller-manager, the suite, its echo server,
and the implementation under test. Here: the parts of a cluster that need other machines. Dependencies
point down:

    suite, implementation   what runs in the cluster
    control_plane           etcd, API server, controllers, kinds, kubeconfig
    kubelet                 schedules pods and runs them (pod, container, volumes, kubelet_server, logs)
    service_proxy           addresses of load balancers, and translation of addresses of Services
    network                 bridge, one network namespace per pod, address ranges
    objects, watch          calls to the API server
    isolation               namespaces of the run itself, and its end
"""
